ESCAPE_IMPLS: tuple[str, ...]
"""How quotes and backslashes are found and escaped: the ways that this processor has, the fastest one last."""

def choose_escapes(implementation: str) -> None:
    """Use one of ESCAPE_IMPLS from now on; for tests. The last one is used without a choice."""
