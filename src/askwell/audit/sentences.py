"""An audit told in plain sentences."""

from askwell.audit.audit import SetAudit


def sentences(audit: SetAudit) -> list[str]:
    """What a reader of a score on these facts should know, one sentence each; what is not the case is left out."""
    facts, test = audit.by_split("facts"), audit.test
    told = [
        f"{facts['train']:,} train, {facts['dev']:,} dev and {test:,} test facts, "
        f"{audit.total('distinct'):,} of them distinct."
    ]
    repeated = {split: count for split, count in audit.by_split("duplicates").items() if count}
    if repeated:
        counts = ", ".join(f"{count:,} of {split}" for split, count in repeated.items())
        told.append(f"Lines that repeat a fact of their own split: {counts}.")
    if leaked := audit.total("leaked_pairs"):
        told.append(
            f"{leaked:,} of {test:,} test facts ({100 * leaked / test:.1f} %) stand in train too: "
            "a score on them can be memory."
        )
    else:
        told.append("No test fact stands in train.")
    if audit.total("leaked_x"):
        told.append(
            f"{audit.micro('leaked_x'):.1f} % of test facts have an x that train has too; answering with train's y "
            f"for the same x scores {audit.micro('copy_train_y'):.1f} %."
        )
    if in_dev := audit.total("in_dev"):
        told.append(f"{_counted(in_dev, 'test fact stands', 'test facts stand')} in dev too.")
    if dev_in_train := audit.total("dev_in_train"):
        stand = _counted(dev_in_train, "dev fact stands", "dev facts stand")
        told.append(f"{stand} in train too, so dev flatters what was learned by heart.")
    told.append(
        f"Always answering train's most common y scores {audit.micro('majority'):.1f} % (mean over facts) or "
        f"{audit.macro('majority'):.1f} % (mean over relations)."
    )
    if audit.total("y_in_x"):
        told.append(
            f"In {audit.micro('y_in_x'):.1f} % of test facts y stands inside x; answering with a y of train that "
            f"stands inside x scores {audit.micro('copy_x'):.1f} %."
        )
    if audit.total("unseen_y"):
        told.append(
            f"{audit.micro('unseen_y'):.1f} % of test facts have a y that train never shows: they cannot be owed to "
            "a preference for train's ys."
        )
    if audit.total("several_golds"):
        told.append(
            f"{audit.micro('several_golds'):.1f} % of test facts have an x with several right ys in test "
            f"({audit.micro('several_golds_all'):.1f} % when train and dev are counted too)."
        )
    return told


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
