"""The engine that a sweep asks for."""

from pathlib import Path

from askwell.errors import BadFile
from askwell.specs import SweepSpec
from askwell.sweep.engines.engine import Engine
from askwell.sweep.engines.in_process import InProcess
from askwell.sweep.engines.pool import Pool
from askwell.sweep.engines.ray_engine import RayCluster, is_installed
from askwell.training.loop import available_threads


def check_engine(sweep: SweepSpec, file: Path) -> None:
    """Refuses an engine that cannot be, before any work; nothing is started."""
    if sweep.engine == "ray" and not is_installed():
        raise BadFile(file, "engine: Ray is not installed here; get it with: pip install 'askwell[cluster]'")
    if sweep.engine != "pool" and sweep.workers is not None:
        raise BadFile(file, f"workers: they are the pool's; the engine is {sweep.engine}")
    if sweep.engine != "ray":
        for key in ("address", "cpus_per_run", "gpus_per_run"):
            if getattr(sweep, key) is not None:
                raise BadFile(file, f"{key}: it is for the engine ray; the engine is {sweep.engine}")


def choose_engine(sweep: SweepSpec) -> Engine:
    """The engine, ready to run."""
    if sweep.engine == "in-process":
        return InProcess()
    if sweep.engine == "pool":
        return Pool(sweep.workers or max(1, available_threads() // sweep.threads))
    gpus = sweep.gpus_per_run if sweep.gpus_per_run is not None else float(sweep.device == "cuda")
    return RayCluster(sweep.address, sweep.cpus_per_run or float(sweep.threads), gpus)
