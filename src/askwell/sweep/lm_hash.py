"""One hash for who an LM is."""

import hashlib
import json

from askwell.lms import FrozenLM


def lm_hash(lm: FrozenLM) -> str:
    """SHA-256 of all that makes an LM this one, whatever it is called and wherever it lies."""
    identity = lm.identity.model_dump(mode="json", exclude={"name", "revision"})
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
