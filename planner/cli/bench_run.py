"""Carries out a benchmark: applies its stack, waits for what it measures, always deletes it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from planner.cli import progress
from planner.cli.apply import ask_account, preflight
from planner.cli.bench_plan import stack_plan
from planner.cli.bench_watch import BenchWatch, cancelled_error
from planner.cli.compose import open_bucket, open_engine
from planner.cli.destroy import delete_stack
from planner.cli.planning import standing_range
from planner.cli.run import NO_SUMMARY, run_engine
from planner.errors import (
    CancelledError,
    LockedError,
    Problem,
    TonnageError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planner.cli.bench_plan import PlannedBench
    from planner.cli.compose import PlanningOptions
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import Permission, StackEngine
    from stacks.engine.stop import StopRequest
    from stacks.operate.upload import LocalFile

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
        files = self._weight_files()
        preflight(engine, plan)
        if engine.simulated_world() is None:
            ask_account(plan, status, self.bench.settings.catalog)
        stop = StopRequest()
        with (
            stop_on_signals(stop, progress.say_stopping),
            self._deleted_at_the_end(engine, stop),
        ):
            self._apply(engine, plan)
            status = engine.stack_status(self.stack)
            # An apply that was asked to end has said so.
            assert status is not None  # noqa: S101 - it stands
            self._bring_weights(status, files, stop)
            return self._measured(engine, status, stop)

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

    def _weight_files(self) -> list[LocalFile]:
        """Return the files to be brought. Raises UsageError where one is missing."""
        from stacks.operate.upload import local_files
        from stacks.spec.upload import model_upload

        if self.weights is None:
            return []
        rule = model_upload(self.bench.sweep.model_name)
        return local_files(self.weights, rule.required)

    def _bring_weights(
        self, status: StackStatus, files: list[LocalFile], stop: StopRequest
    ) -> None:
        """Bring the weights to the bucket, where the machine waits for them."""
        from stacks.operate.upload import upload
        from stacks.spec.upload import model_upload

        if not files:
            return
        rule = model_upload(self.bench.sweep.model_name)
        bucket = open_bucket(status, self.options)
        total_bytes = sum(file.size for file in files)
        with (
            progress.transferring("sent", total_bytes) as listener,
            bucket.errors(),
        ):

            def read(read_bytes: int) -> None:
                # Weights take long, and nobody wants them any more.
                if stop.is_made:
                    raise cancelled_error(self.stack)
                listener.read(read_bytes)

            upload(
                bucket.folder(rule.prefix), files, replace(listener, read=read)
            )

    def _measured(
        self, engine: StackEngine, status: StackStatus, stop: StopRequest
    ) -> dict[str, bytes]:
        """Wait for all results, and write each down as it comes."""
        is_real = engine.simulated_world() is None
        # The life of its machine counts from the first apply.
        started = status.started if is_real else ""
        watch = BenchWatch(
            run=self,
            engine=engine,
            bucket=open_bucket(status, self.options),
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
    def _deleted_at_the_end(
        self, engine: StackEngine, stop: StopRequest
    ) -> Iterator[None]:
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
            # What is under way when a run is asked to end may fail in its own way.
            failure = cancelled_error(self.stack) if stop.is_made else error
            raise self._without_stack(failure) from error
        finally:
            if is_ours:
                self._delete(engine, failure)

    def _without_stack(self, error: TonnageError) -> TonnageError:
        """Return an error of a run whose stack is deleted."""
        if isinstance(error, CancelledError):
            return cancelled_error(self.stack)
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


def removal_command(stack: str, options: PlanningOptions) -> str:
    """Return the command that deletes the stack of a benchmark with all that is in it."""
    return f"tonnage destroy {stack} --allow delete-data --yes{options.flags}"
