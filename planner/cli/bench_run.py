"""Carries out a benchmark: applies its stack, waits for what it measures, always deletes it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from planner import figures
from planner.cli import progress
from planner.cli.apply import ask_account, preflight
from planner.cli.bench_plan import stack_plan
from planner.cli.compose import open_bucket, open_engine
from planner.cli.destroy import delete_stack
from planner.cli.planning import standing_range
from planner.cli.run import NO_SUMMARY, run_engine
from planner.errors import (
    CancelledError,
    ExpectationError,
    LockedError,
    Problem,
    TimedOutError,
    TonnageError,
    UsageError,
)
from providers.simulated.clock import advance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planner.cli.bench_plan import PlannedBench
    from planner.cli.compose import PlanningOptions
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import Permission, StackEngine
    from stacks.engine.stop import StopRequest

LOOK_S: Final = 15.0
# Nothing of a benchmark is kept in the cloud.
ALLOWED: Final[frozenset[Permission]] = frozenset({"delete-data"})
# What a run says of a stack that stands; this one is deleted.
REMAINS: Final = "remains"


class BenchRun(Struct, frozen=True, kw_only=True):
    """One run of a benchmark.

    weights  folder that is brought to its machine; none where it fetches them itself
    results  folder that gets what was measured
    resumes  whether a stack that an earlier run has left is gone on with
    """

    bench: PlannedBench
    options: PlanningOptions
    weights: Path | None
    results: Path
    resumes: bool

    @property
    def stack(self) -> str:
        """The name of its stack."""
        return self.bench.spec.name

    @property
    def removal(self) -> str:
        """The command that deletes its stack."""
        return removal_command(self.stack, self.options)

    def carry_out(self) -> dict[str, bytes]:
        """Return what was measured, by path; nothing on simulated clouds, which measure nothing.

        Whatever happens, the stack is deleted, or the error says with which command it is. Raises
        ExpectationError for a load that cannot be measured, TimedOutError at the limit, and every
        error of an apply.
        """
        from stacks.engine.stop import StopRequest, stop_on_signals

        engine = open_engine(self.options)
        status = engine.stack_status(self.stack)
        plan = stack_plan(
            self.bench,
            self.options,
            standing_range(engine, self.stack, self.bench.spec.network, status),
        )
        self._refuse_standing(status, plan)
        preflight(engine, plan)
        if engine.simulated_world() is None:
            ask_account(plan, status, self.bench.settings.catalog)
        stop = StopRequest()
        with (
            stop_on_signals(stop, progress.say_stopping),
            self._deleted_at_the_end(engine),
        ):
            self._apply(engine, plan)
            self._bring_weights(engine)
            return self._measured(engine, stop)

    def _refuse_standing(self, status: StackStatus | None, plan: Plan) -> None:
        """Raise UsageError for a stack of an earlier run, unless this one goes on with it."""
        if status is None:
            return
        is_same = status.plan == plan.digest and status.operation not in (
            "destroying",
            "destroyed",
        )
        if self.resumes and is_same:
            return
        raise UsageError(
            Problem(
                code="bench",
                message=f"{self.stack} stands from an earlier run",
                cause="it was planned otherwise, or is half deleted"
                if self.resumes
                else "that run goes on elsewhere, or was cut off",
                next_step=f"delete it: {self.removal}"
                if not is_same
                else f"go on with it: add --resume; or delete it: {self.removal}",
            )
        )

    def _apply(self, engine: StackEngine, plan: Plan) -> None:
        from stacks.engine.protocol import RunControl

        run_engine(
            engine,
            lambda listener, stop: engine.apply(
                plan, listener, RunControl(stop=stop)
            ),
            "apply",
            self.stack,
            self.options,
            expected_steps=len(plan.graph.resources),
            output_format=NO_SUMMARY,
            plan=plan,
        )

    def _bring_weights(self, engine: StackEngine) -> None:
        """Bring the weights to the bucket, where its machine waits for them."""
        from stacks.operate.standing import upload_of
        from stacks.operate.upload import local_files, upload

        status = engine.stack_status(self.stack)
        if self.weights is None or status is None:
            return
        rule = upload_of(status)
        bucket = open_bucket(status, self.options)
        with bucket.errors():
            files = local_files(self.weights, rule.required)
        with (
            progress.transferring(
                "sent", sum(file.size for file in files)
            ) as listener,
            bucket.errors(),
        ):
            upload(bucket.folder(rule.prefix), files, listener)

    def _measured(
        self, engine: StackEngine, stop: StopRequest
    ) -> dict[str, bytes]:
        """Wait for all results, and write each down as it comes."""
        status = engine.stack_status(self.stack)
        is_real = engine.simulated_world() is None
        # The life of its machine counts from the first apply.
        started = status.started if status is not None and is_real else ""
        watch = BenchWatch(
            run=self,
            engine=engine,
            stop=stop,
            began=datetime.fromisoformat(started)
            if started
            else datetime.now(UTC),
        )
        with progress.waiting(f"{self.stack} starts and measures"):
            while not watch.look():
                watch.pause()
        return watch.found

    @contextmanager
    def _deleted_at_the_end(self, engine: StackEngine) -> Iterator[None]:
        """Delete the stack, however what is done with it ends."""
        failure: TonnageError | None = None
        is_ours = True
        try:
            yield
        except LockedError:
            # Another run works on it, and deletes it.
            is_ours = False
            raise
        except TonnageError as error:
            failure = error
            raise self._without_stack(error) from error
        finally:
            if is_ours:
                self._delete(engine, failure)

    def _without_stack(self, error: TonnageError) -> TonnageError:
        """Return an error of a run whose stack is deleted."""
        if isinstance(error, CancelledError):
            return _cancelled_error(self.stack)
        return type(error)(
            *(problem for problem in error.problems if problem.code != REMAINS)
        )

    def _delete(
        self, engine: StackEngine, failure: TonnageError | None
    ) -> None:
        """Delete the stack. Raises what has failed before too, where it cannot be deleted."""
        status = engine.stack_status(self.stack)
        if status is None:
            return
        click.echo(
            f"deleting {self.stack}; if this is cut off: {self.removal}",
            err=True,
        )
        try:
            delete_stack(status, self.options, ALLOWED, NO_SUMMARY)
        except TonnageError as error:
            known = self._without_stack(failure).problems if failure else ()
            kind = type(failure or error)
            raise kind(*known, self._left_problem(error)) from error

    def _left_problem(self, error: TonnageError) -> Problem:
        """Say what is left, and the one command that deletes it."""
        remains = [
            problem.message
            for problem in error.problems
            if problem.code == REMAINS
        ]
        return Problem(
            code="left",
            message="; ".join(remains) or f"{self.stack} is not deleted",
            cause=error.problems[0].message,
            next_step=self.removal,
        )


class BenchWatch(Struct, kw_only=True):
    """Watches a benchmark that is under way.

    began   when the stack was applied first; on simulated clouds, when this run began to wait
    passed  seconds that it has waited; simulated ones on simulated clouds
    found   what was measured, by path
    names   of the results that are there
    """

    run: BenchRun
    engine: StackEngine
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
            raise _cancelled_error(self.run.stack)
        status = self.engine.stack_status(self.run.stack)
        if status is None:
            raise self._failed_error("its stack was deleted meanwhile")
        bucket = open_bucket(status, self.run.options)
        try:
            state = bench_state(bucket, self.names)
            trouble = self._trouble(status)
        except TonnageError as error:
            self._tell_problem(error)
            self._refuse_late()
            return False
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

    def _trouble(self, status: StackStatus) -> str:
        """Return why a machine of a real cloud was given back in trouble; empty without that."""
        from stacks.operate.health import troubles_since

        if self.engine.simulated_world() is not None:
            return ""
        troubles = troubles_since(
            open_bucket(status, self.run.options),
            self.began - timedelta(minutes=1),
        )
        return (
            f"its machine was given back: {troubles[0].reason}"
            if troubles
            else ""
        )

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


def removal_command(stack: str, options: PlanningOptions) -> str:
    """Return the command that deletes the stack of a benchmark with all that is in it."""
    return f"tonnage destroy {stack} --allow delete-data --yes{options.flags}"


def _cancelled_error(stack: str) -> CancelledError:
    return CancelledError(
        Problem(
            code="cancelled",
            message=f"the benchmark {stack} was cancelled",
            cause="what it had made is deleted, and what was measured is kept",
            next_step="run the same command again",
        )
    )
