"""A namespace as users see it: evaluation of the last good tree, and how well that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace.client.flags.actions import StateChanged, TreePublished
from headrace.client.flags.listeners import Deliver, FlagChange, FlagStateChange, Listeners
from headrace.client.flags.mirror import NamespaceMirror
from headrace.client.flags.problems import FlagState, RefreshError
from headrace.client.flags.trees import changed_flags
from headrace.flags.evaluation import UnknownFlag, evaluate

_NO_CONTEXT: Mapping[str, Any] = {}


class FlagsNotReady(TimeoutError):
    """There is no verified tree yet; says what is in the way, as far as that is known."""

    def __init__(self, namespace: str, error: RefreshError | None) -> None:
        why = "nothing was announced" if error is None else str(error)
        super().__init__(f"the flags of {namespace} are not there yet: {why}")
        self.namespace = namespace
        self.error = error


class FlagEvaluation(msgspec.Struct, frozen=True):
    """A value, and where it comes from."""

    flag: str
    value: Any
    variant: str | None
    """None: it is the default of who asked."""
    rule_matched: str | None
    """`rule:` and the number of the rule, or `default`; None: no tree was asked."""
    version: int | None
    """Of the tree that was asked."""
    state: FlagState
    """How well the namespace was known then."""
    reason: str
    """`resolved`, `flag_not_found` or `not_ready`."""

    @property
    def is_stale(self) -> bool:
        """Whether there may be a newer tree that could not be had."""
        return self.state is not FlagState.FRESH


class FlagNamespace:
    """Flags of one namespace. Everything here answers at once, and from any thread."""

    def __init__(self, mirror: NamespaceMirror, environment: str | None, deliver: Deliver) -> None:
        self.name = mirror.subscription.name
        self._mirror = mirror
        self._environment = environment
        self._is_kept_up: Callable[[], bool] = lambda: False
        self._changes: Listeners[FlagChange] = Listeners(deliver)
        self._states: Listeners[FlagStateChange] = Listeners(deliver)

    # --- evaluation -------------------------------------------------------------------------------

    def eval(
        self,
        flag: str,
        context: Mapping[str, Any] | None = None,
        default: Any = None,
        *,
        environment: str | None = None,
        testing: bool = False,
    ) -> Any:
        """The value of a flag for somebody; `default` if there is no such flag, or no tree yet."""
        return self.evaluate(flag, context, default, environment=environment, testing=testing).value

    def evaluate(
        self,
        flag: str,
        context: Mapping[str, Any] | None = None,
        default: Any = None,
        *,
        environment: str | None = None,
        testing: bool = False,
    ) -> FlagEvaluation:
        """The same with variant, rule, version and state.

        `environment` is the one of the group unless it is said here; `testing`: rules of
        environments that are only tried out count as well.
        """
        tree, state = self._mirror.tree, self.state
        if tree is None:
            return FlagEvaluation(flag, default, None, None, None, state, "not_ready")
        if environment is None:
            environment = self._environment
        try:
            found = evaluate(tree.definitions, flag, context or _NO_CONTEXT, environment, testing)
        except UnknownFlag:
            return FlagEvaluation(flag, default, None, None, tree.version, state, "flag_not_found")
        return FlagEvaluation(
            flag, found.value, found.variant, found.rule_matched, tree.version, state, "resolved"
        )

    # --- what is known ----------------------------------------------------------------------------

    @property
    def state(self) -> FlagState:
        """How well the namespace is known."""
        state = self._mirror.state
        return FlagState.STALE if state is FlagState.FRESH and not self._is_kept_up() else state

    @property
    def version(self) -> int | None:
        """Of the tree that is served; None: there is none yet."""
        tree = self._mirror.tree
        return None if tree is None else tree.version

    @property
    def closure_hash(self) -> str | None:
        """Of the tree that is served."""
        tree = self._mirror.tree
        return None if tree is None else tree.closure_hash

    @property
    def files(self) -> dict[str, bytes]:
        """The files that are served, by path, as they were uploaded."""
        tree = self._mirror.tree
        return {} if tree is None else dict(tree.files)

    @property
    def flags(self) -> list[str]:
        """Keys of the flags that there are, sorted."""
        tree = self._mirror.tree
        return [] if tree is None else sorted(tree.definitions.flags)

    def last_refresh_error(self) -> RefreshError | None:
        """Why the tree may not be the newest one; None as soon as it is again."""
        return self._mirror.error

    def on_change(self, callback: Callable[[FlagChange], object]) -> Callable[[], None]:
        """Have this called whenever another tree is served; returns what ends that."""
        return self._changes.add(callback)

    def on_state(self, callback: Callable[[FlagStateChange], object]) -> Callable[[], None]:
        """Have this called whenever `state` changes; returns what ends that."""
        return self._states.add(callback)

    def check_ready(self) -> None:
        """FlagsNotReady if there is no tree to serve."""
        if self._mirror.tree is None:
            raise FlagsNotReady(self.name, self.last_refresh_error())

    # --- told by the group ------------------------------------------------------------------------

    def keep_up(self, is_running: Callable[[], bool]) -> None:
        """The group runs as long as this says so; behind that, nothing is fresh any more."""
        self._is_kept_up = is_running

    def decide(self) -> None:
        """There is a tree, or none will come: nobody is to wait for it any longer."""

    def tell(self, shown: TreePublished | StateChanged) -> None:
        """Another tree is served, or the state is another one: listeners are to hear of it."""
        if isinstance(shown, TreePublished):
            self.decide()
        if isinstance(shown, StateChanged):
            self._states.offer(FlagStateChange(self.name, shown.state, shown.previous, shown.error))
        elif self._changes:
            tree, previous = shown.tree, shown.previous
            before = None if previous is None else previous.version
            flags = changed_flags(previous, tree)
            self._changes.offer(FlagChange(self.name, tree.version, before, flags))
