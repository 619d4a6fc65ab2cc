"""Watches a benchmark that is under way, and keeps what its machine has measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from planner import figures
from planner.errors import (
    CancelledError,
    ExpectationError,
    Problem,
    TimedOutError,
    TonnageError,
)
from providers.simulated.clock import advance

if TYPE_CHECKING:
    from planner.cli.bench_run import BenchRun
    from stacks.engine.protocol import StackEngine
    from stacks.engine.stop import StopRequest
    from stacks.operate.bucket import Bucket

LOOK_S: Final = 15.0


class BenchWatch(Struct, kw_only=True):
    """Watches a benchmark that is under way.

    began   when the stack was applied first; on simulated clouds, when this run began to wait
    passed  seconds that it has waited; simulated ones on simulated clouds
    found   what was measured, by path
    names   of the results that are there
    """

    run: BenchRun
    engine: StackEngine
    bucket: Bucket
    stop: StopRequest
    began: datetime
    passed: float = 0.0
    found: dict[str, bytes] = {}
    names: tuple[str, ...] = ()
    told_problem: str = ""

    def pause(self) -> None:
        """Let some time pass, and none once the run was asked to end."""
        world = self.engine.simulated_world()
        if world is None:
            self.stop.wait(LOOK_S)
            self.passed = (datetime.now(UTC) - self.began).total_seconds()
        else:
            advance(world, LOOK_S)
            self.passed += LOOK_S

    def look(self) -> bool:
        """Take what has come; True once nothing comes any more.

        A bucket that does not answer is asked again: it keeps what there is.
        """
        from stacks.operate.bench import bench_state

        if self.stop.is_made:
            raise cancelled_error(self.run.stack)
        try:
            state = bench_state(self.bucket, self.names)
            trouble = self._trouble()
        except TonnageError as error:
            if self.engine.stack_status(self.run.stack) is None:
                reason = "its stack was deleted meanwhile"
                raise self._failed_error(reason) from error
            self._tell_problem(error)
            return self._refuse_late()
        for name, result in sorted(state.results.items()):
            self._keep(name, result)
        if state.failure or trouble:
            raise self._failed_error(state.failure or trouble)
        if state.is_over:
            return True
        return self._refuse_late()

    def _keep(self, name: str, result: bytes) -> None:
        """Write a result down at once: it is paid for."""
        from providers.files import write_atomically

        folder = self.run.results
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        write_atomically(
            path, result.decode("utf-8", "replace"), is_private=False
        )
        self.names = (*self.names, name)
        self.found = {**self.found, str(path): result}
        loads = len(self.run.bench.sweep.steps)
        click.echo(f"measured {len(self.names)} of {loads}: {path}", err=True)

    def _trouble(self) -> str:
        """Return why a machine of a real cloud was given back in trouble; empty without that."""
        from stacks.operate.health import troubles_since

        if self.engine.simulated_world() is not None:
            return ""
        troubles = troubles_since(
            self.bucket, self.began - timedelta(minutes=1)
        )
        if not troubles:
            return ""
        return f"its machine was given back: {troubles[0].reason}"

    def _refuse_late(self) -> bool:
        """Raise TimedOutError at the limit; True where machines that measure would be done by now.

        Simulated ones measure nothing, unless somebody plays them.
        """
        bench = self.run.bench
        is_simulated = self.engine.simulated_world() is not None
        is_silent = is_simulated and not self.names
        if is_silent and self.passed >= bench.time.expected_s:
            return True
        if self.passed < bench.allowed_s:
            return False
        limit = figures.dollars(bench.most_usd, cents=True)
        raise TimedOutError(
            Problem(
                code="late",
                message=f"{len(self.names)} of {len(bench.sweep.steps)} loads were measured "
                f"within {figures.about(bench.allowed_s)}, which cost {limit} at most",
                next_step=self._use_step("allow more: --max-cost USD"),
            )
        )

    def _failed_error(self, reason: str) -> ExpectationError:
        return ExpectationError(
            Problem(
                code="bench",
                message=f"the benchmark of {self.run.bench.spec_file.path} failed",
                cause=reason,
                next_step=self._use_step(
                    "mend that, then run the same command again"
                ),
            )
        )

    def _use_step(self, other_step: str) -> str:
        """Return the next step: what was measured may be enough."""
        if not self.names:
            return other_step
        return (
            f"{other_step}; or use what was measured: "
            f"tonnage calibrate {self.run.results}/*.json"
        )

    def _tell_problem(self, error: TonnageError) -> None:
        """Say once why the bucket does not answer."""
        problem = error.problems[0]
        text = f"asked again: {problem.message}"
        if text != self.told_problem:
            self.told_problem = text
            click.echo(f"note: {text}", err=True)


def cancelled_error(stack: str) -> CancelledError:
    """Return the error of a benchmark that was asked to end, and whose stack is deleted."""
    return CancelledError(
        Problem(
            code="cancelled",
            message=f"the benchmark {stack} was cancelled",
            cause="what it had made is deleted, and what was measured is kept",
            next_step="run the same command again",
        )
    )
