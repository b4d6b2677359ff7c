// A training job is watched by server-sent events; each of them fetches its part of the page anew.
"use strict";

function watch(job) {
  if (!job.dataset.events) return;
  const events = new EventSource(job.dataset.events);
  let last = 0;
  let late = null;
  const refresh = () => {
    last = Date.now();
    late = null;
    htmx.trigger(job, "progress");
  };
  events.onmessage = (event) => {
    const state = JSON.parse(event.data).state;
    const over = ["done", "cancelled", "failed"].includes(state);
    if (over) events.close();
    if (late !== null) clearTimeout(late);
    late = setTimeout(refresh, over ? 0 : Math.max(0, 500 - (Date.now() - last)));
  };
  window.addEventListener("pagehide", () => events.close());
}

document.addEventListener("DOMContentLoaded", () => {
  const job = document.getElementById("job");
  if (job) watch(job);
});

// An uploaded file proposes its name for the relation, until one has been typed.
document.addEventListener("DOMContentLoaded", () => {
  const [file, relation] = ["file", "relation"].map((id) => document.getElementById(id));
  if (!file || !relation) return;
  let proposed = "";
  file.addEventListener("change", () => {
    if (relation.value.trim() !== proposed || !file.files.length) return;
    proposed = file.files[0].name.replace(/\.[^.]*$/, "").slice(0, relation.maxLength).trim();
    relation.value = proposed;
  });
});
