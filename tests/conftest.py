"""Shape annotations of the whole package are checked while its tests run."""

import sys
from pathlib import Path

import torch
from jaxtyping import install_import_hook

sys.path.insert(0, str(Path(__file__).parent))
install_import_hook("askwell", "beartype.beartype")
torch.set_num_threads(1)
