"""Training: a job over the nodes of a pool, which goes on when one of them is replaced."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import activity, container, file_system
from stacks.runtime.vm.node.checkpoint import Checkpoints, Rank
from stacks.runtime.vm.node.group import Membership, SeatPool
from stacks.runtime.vm.node.host import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.group import Epoch, Seat
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

NAME = "tonnage-train"
# Checkpoints are looked for less often than nodes.
KEEP_S = 60.0
FILL_LOOK_S = 0.2


class TrainingNode:
    """The job on this node.

    Settings: container, words, pool, nodes, ranks_per_node, master_port, grace_s, hung_s, is_spot,
    those of Checkpoints, and where machines on spot join others a base: its nodes, words and
    hung_s.
    """

    def __init__(
        self,
        machine: Host,
        cloud: CloudApi,
        work: Work,
        settings: Mapping[str, Any],
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._work = work
        self._settings = settings
        self._base: Mapping[str, Any] = settings.get("base", {})
        self._checkpoints = Checkpoints(machine, cloud, settings)
        self._failures = container.Failures(machine)
        self._membership = Membership(
            SeatPool(
                machine,
                cloud,
                settings["pool"],
                group_count=1,
                span=settings["nodes"],
                base=self._base.get("nodes", 0),
                is_spot=settings["is_spot"],
            ),
            work,
            self._remove,
        )
        self._was_started = False
        self._kept_s = machine.now_s()
        self._last_line = ""
        self._moves_of_all = 0
        self._filler: threading.Thread | None = None
        self._problem = ""
        self._moved_s = machine.now_s()
        # The newest step that the bucket had when this node looked last.
        self._saved_step = 0

    def look(self) -> bool:
        """Do what is due, and say how it stands; False once the job has ended for good."""
        ending = self._checkpoints.ending()
        if ending is not None:
            self._membership.leave_epoch()
            phase = "failed" if ending.problem else "done"
            self._work.tell(phase, "train", ending.problem)
            return False
        if self._failures.are_many:
            # A job that fails everywhere is no matter of a machine.
            self._checkpoints.tell_failed(self._problem)
            return True
        place = self._membership.join()
        if place is None:
            return True
        seat, epoch = place
        exit_ = container.ended(self._machine, NAME)
        if not self._was_started:
            self._start(seat, epoch)
        elif exit_ is None:
            self._look_at_job(seat, epoch)
        elif exit_.code == 0:
            self._end(seat, epoch)
        else:
            self._fail(
                seat,
                epoch,
                f"the job ended with {exit_.code}: {exit_.last_lines}",
            )
        return True

    def leave(self) -> None:
        """Let the job save, bring its checkpoint to the bucket, and let others begin anew."""
        container.stop(self._machine, NAME, self._settings["grace_s"])
        seat, epoch = self._membership.seat, self._membership.epoch
        if seat is not None and epoch is not None:
            self._keep(seat, epoch)
        self._membership.leave()

    def _remove(self) -> None:
        container.remove(self._machine, NAME)
        self._was_started = False

    def _start(self, seat: Seat, epoch: Epoch) -> None:
        """Go on from the newest complete checkpoint, together with the others."""
        settings = self._settings
        if settings["fills_files"] and not file_system.is_filled(self._machine):
            self._fill_files(seat)
            return
        self._work.tell("starting", "restore the checkpoint")
        rank = self._rank(seat, epoch)
        self._checkpoints.restore(rank, partial(self._pulse, seat))
        container.start(
            self._machine,
            NAME,
            settings["container"],
            [
                f"--nnodes={len(epoch.members)}",
                f"--nproc-per-node={settings['ranks_per_node']}",
                f"--node-rank={seat.rank}",
                f"--master-addr={epoch.members[0].address}",
                f"--master-port={settings['master_port']}",
                *self._told(epoch)["words"],
            ],
            {"TONNAGE_DONE": self._checkpoints.done_mark},
        )
        self._was_started = True
        self._moved_s = self._machine.now_s()
        self._saved_step = self._checkpoints.saved_step()

    def _told(self, epoch: Epoch) -> Mapping[str, Any]:
        """Return the settings of the job for the nodes of an epoch: all, or the base alone."""
        is_whole = len(epoch.members) == self._settings["nodes"]
        return self._settings if is_whole else self._base

    def _fill_files(self, seat: Seat) -> None:
        """Let the first node bring the dataset for hours, while all say that they live."""
        self._work.tell("working", "bring the dataset")
        if seat.rank:
            return
        if self._filler is None or not self._filler.is_alive():
            self._filler = threading.Thread(
                target=file_system.fill_files,
                args=(self._machine, self._cloud),
                daemon=True,
            )
            self._filler.start()
        # A small dataset is there at once.
        self._filler.join(FILL_LOOK_S)

    def _pulse(self, seat: Seat) -> None:
        """Say in the middle of long work that this node lives."""
        seat.renew()
        self._work.tell(self._work.state.phase, self._work.state.step)

    def _look_at_job(self, seat: Seat, epoch: Epoch) -> None:
        line = activity.last_line(self._machine, NAME)
        has_moved = line != self._last_line
        self._last_line = line
        seat.moves += has_moved
        # Most jobs write their log on one rank: the first node looks at all of them.
        if has_moved or seat.moves_of_all != self._moves_of_all:
            self._moves_of_all = seat.moves_of_all
            self._moved_s = self._machine.now_s()
        silent_s = self._machine.now_s() - self._moved_s
        if seat.rank == 0 and silent_s >= self._told(epoch)["hung_s"]:
            self._fail(seat, epoch, "the job has said nothing for too long")
            return
        self._work.tell("working", "train")
        seat.lets_in = False
        if self._machine.now_s() - self._kept_s >= KEEP_S:
            self._kept_s = self._machine.now_s()
            if self._keep(seat, epoch):
                self._let_others_in(seat)

    def _let_others_in(self, seat: Seat) -> None:
        """Let machines that have come back join at a checkpoint: little is done twice then."""
        step = self._checkpoints.saved_step()
        if step != self._saved_step and self._checkpoints.is_saved():
            self._saved_step = step
            seat.lets_in = True

    def _keep(self, seat: Seat, epoch: Epoch) -> bool:
        """Bring new checkpoints to the bucket; what fails is tried again."""
        try:
            self._checkpoints.keep(
                self._rank(seat, epoch), partial(self._pulse, seat)
            )
        except (RequestError, OSError) as error:
            self._work.tell(
                "working", "train", f"the checkpoint is not saved: {error}"
            )
            return False
        return True

    def _end(self, seat: Seat, epoch: Epoch) -> None:
        """End the job once its checkpoint is saved. The first node tells the others.

        A job that ends well without being done was asked to stop, and starts again.
        """
        if not self._keep(seat, epoch):
            return
        if seat.rank:
            self._work.tell("working", "wait for the first node to end the job")
        elif not self._checkpoints.says_done():
            self._fail(seat, epoch, "the job ended before its last step")
        elif self._checkpoints.is_saved():
            self._checkpoints.tell_done()
        else:
            self._work.tell(
                "working", "wait for the last checkpoint of the others"
            )

    def _fail(self, seat: Seat, epoch: Epoch, problem: str) -> None:
        """Count a failure, save what there is, and let all nodes begin a new epoch."""
        self._failures.add()
        self._problem = problem
        self._keep(seat, epoch)
        self._work.fail("train", problem)
        self._membership.fail()

    def _rank(self, seat: Seat, epoch: Epoch) -> Rank:
        return Rank(seat.rank, len(epoch.members), epoch.number)
