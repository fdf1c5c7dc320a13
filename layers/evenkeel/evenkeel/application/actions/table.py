"""The table of operator actions, in the order of the command line's help. Each action is in its handler's module."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from evenkeel.application.actions.call import Action, Right

# The actions by their modules, which define them under the same names, with an underscore for a hyphen.
_ROWS = (
    (("plan",), "plan"),
    (("status",), "status"),
    (("explain",), "explain"),
    (("validate",), "validate"),
    (("register",), "register"),
    (("apply",), "apply"),
    (("unregister",), "unregister"),
    (("export",), "register"),
    (("pause", "resume"), "pause"),
    (("readiness", "live", "dry-run"), "live"),
    (("restore",), "pause"),
    (("fence-zone",), "fence_zone"),
    (("drill",), "drill"),
    (("leave-zone",), "leave_zone"),
    (("scale-up", "scale-down", "level"), "scale"),
    (("history", "record"), "history"),
)
_MODULES = {name: module for names, module in _ROWS for name in names}


class _Actions(Mapping[str, Action]):
    """Loads the module of an action at its first use, because a function instance performs few actions."""

    def __getitem__(self, name: str) -> Action:
        module = import_module(f"evenkeel.application.actions.{_MODULES[name]}")
        action: Action = getattr(module, name.replace("-", "_"))
        return action

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


ACTIONS: Mapping[str, Action] = _Actions()


def right_needed(event: Mapping[str, Any]) -> Right:
    """Return the right that an event needs. An unknown action needs only READ, because it does nothing."""
    name = event.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    return Right.READ if action is None else action.right_for(event)
