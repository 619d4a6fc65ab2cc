"""The state of a stack while a run works on it: read once, and written before and after calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.state import StackState, decode_state, encode_state

if TYPE_CHECKING:
    from stacks.engine.store import StateStore


class StateFile:
    """The state of a stack, and where it is kept."""

    def __init__(self, store: StateStore, stack_name: str) -> None:
        self.store = store
        stored = store.read(stack_name)
        self.exists = stored is not None
        self.state = (
            decode_state(stored.content, store.location(stack_name))
            if stored
            else StackState(stack=stack_name)
        )
        self.version = stored.version if stored else None

    def save(self) -> None:
        """Write the state durably. Raises LockedError when another run has written since."""
        self.state.serial += 1
        self.version = self.store.write(
            self.state.stack, encode_state(self.state), self.version
        )
        self.exists = True

    def delete(self) -> None:
        """Delete the state: nothing is left of the stack."""
        self.store.delete(self.state.stack)
