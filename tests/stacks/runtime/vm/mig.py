"""The MIG mode of an accelerator in memory, as NVIDIA's user guide tells of it.

"Getting Started with MIG": the mode takes a reset, and in virtual machines often a reboot; it is
kept over a reboot where the driver stores it (Ampere). Instances are never kept. Creating
instances where one is in the way fails, and so does removing instances that compute.
"""

from __future__ import annotations

from stacks.runtime.vm.node.host import CommandError

# Memory slices of profiles of an A100 of 40 GB: nvidia-smi mig -lgipp.
SIZES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}


class MigDevice:
    """An accelerator that can be divided."""

    def __init__(self) -> None:
        self.is_on = False
        self.is_pending = False
        self.reset_works = False
        self.never_enters = False
        self.made_in_boot = 0
        self.slices: list[tuple[str, int]] = []

    def is_asked(self, words: tuple[str, ...]) -> bool:
        return (
            words == ("-L",)
            or "mig" in words
            or "-mig" in words
            or "--gpu-reset" in words
            or "mig.mode" in words[0]
        )

    def answer(self, words: tuple[str, ...], boot: int) -> str:
        if boot != self.made_in_boot:
            # A reboot: what is pending holds, and instances are gone.
            self.is_on = self.is_on or (
                self.is_pending and not self.never_enters
            )
            self.slices, self.made_in_boot = [], boot
        if "mig.mode" in words[0]:
            return "Enabled\n" if self.is_on else "Disabled\n"
        if words == ("-L",):
            return self._listed(boot)
        if "-mig" in words:
            self.is_pending = True
            return "Warning: MIG mode is in pending enable state"
        if "--gpu-reset" in words:
            if not self.reset_works:
                raise CommandError("ended with 3: reset is not supported")
            self.is_on = not self.never_enters
            return ""
        return self._mig(words)

    def _mig(self, words: tuple[str, ...]) -> str:
        if not self.is_on:
            raise CommandError("ended with 1: MIG mode is not enabled")
        if "-dgi" in words:
            self.slices = []
        if "-cgi" in words:
            for word in words[words.index("-cgi") + 1].split(","):
                profile, _, start = word.partition(":")
                self._make(profile, int(start))
        return ""

    def _make(self, profile: str, start: int) -> None:
        wanted = set(range(start, start + SIZES[profile]))
        for other, at in self.slices:
            if wanted & set(range(at, at + SIZES[other])):
                raise CommandError("ended with 19: insufficient resources")
        self.slices.append((profile, start))

    def _listed(self, boot: int) -> str:
        lines = ["GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-0)"]
        lines += [
            f"  MIG {profile:<12}Device {number:>2}: (UUID: MIG-{boot}-{start})"
            for number, (profile, start) in enumerate(self.slices)
        ]
        return "\n".join(lines) + "\n"
