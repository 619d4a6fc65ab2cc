"""The composition root: catalog, solver, stacks and engines for the commands."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from planner.cli.parallel import run_in_parallel
from planner.errors import (
    MissingError,
    Place,
    Problem,
    UsageError,
)
from planner.suggest import closest, did_you_mean
from providers.files import MAX_DOCUMENT_BYTES, MAX_FILE_BYTES, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from planner.market.offer import Catalog
    from planner.perf.serving.replica import Confidence
    from planner.perf.training.correction import TrainingCorrection
    from planner.plan.change import LiveInputs
    from planner.plan.status import StackStatus
    from planner.solve.settings import Memory, SolveSettings
    from planner.spec.model import Spec
    from planner.spec.override import KeyOverride
    from providers.base import PriceSource
    from providers.catalog.folder import CatalogFolder
    from providers.simulated.world import World
    from stacks.engine.protocol import StackEngine
    from stacks.operate.bucket import Bucket

STATE_FOLDER: Final = Path(".tonnage")
DEFAULT_WORLD: Final = "default"
BEGIN_CALIBRATION: Final = "make one: tonnage calibrate BENCH -o FILE"


class SpecFile(Struct, frozen=True, kw_only=True):
    """A spec with the file that it is from.

    path         as given on the command line; - is standard input
    file_bytes   content, for the digest
    read_beside  opens files that the spec names; None: those beside it on this machine
    overrides    what the spec says otherwise than the file
    """

    path: str
    file_bytes: bytes
    spec: Spec
    read_beside: Callable[[str], bytes] | None = None
    overrides: tuple[KeyOverride, ...] = ()

    @property
    def sha256(self) -> str:
        """SHA-256 of the file's bytes, and of what is said otherwise.

        So a plan of another spec than that of the file is never taken for one of the file.
        """
        digest = hashlib.sha256(self.file_bytes)
        for override in self.overrides:
            digest.update(f"\0{override}".encode())
        return digest.hexdigest()

    def folder_reader(
        self, digests: dict[str, str] | None = None
    ) -> Callable[[str], bytes]:
        """Return a function that opens files that the spec names.

        The SHA-256 of each file that it opens is entered into `digests`.
        """
        read_beside = self.read_beside
        if read_beside is None:
            return spec_folder_reader(self.path, digests)

        def read_recorded(file_name: str) -> bytes:
            file_bytes = read_beside(file_name)
            if digests is not None:
                digests[file_name] = hashlib.sha256(file_bytes).hexdigest()
            return file_bytes

        return read_recorded


def read_file(
    path: str,
    most_bytes: int = MAX_FILE_BYTES,
    *,
    begin: str = "write a spec with: tonnage init",
) -> bytes:
    """Return the bytes of a file; `-` is standard input.

    Only regular files are read: another one may never end. Raises MissingError, and UsageError for
    a file of another sort or of more than `most_bytes`. `begin` is how one gets such a file.
    """
    if path == "-":
        content = sys.stdin.buffer.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise _unusable_file(
                path, f"has more than {most_bytes // 2**20} MiB"
            )
        return content
    try:
        return read_regular(path, most_bytes)
    except (FileNotFoundError, NotADirectoryError) as error:
        similar = _similar_file(Path(path))
        raise MissingError(
            Problem(
                code="file",
                message="no such file",
                place=Place(path),
                next_step=f"did you mean '{similar}'?"
                if similar
                else f"check the path, or {begin}",
            )
        ) from error
    except IsADirectoryError as error:
        raise MissingError(
            Problem(
                code="file",
                message="is a folder",
                place=Place(path),
                next_step="name a file in it",
            )
        ) from error
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EFBIG):
            raise
        raise _unusable_file(path, str(error.strerror)) from error


def _unusable_file(path: str, message: str) -> UsageError:
    is_too_large = message.startswith("has more")
    return UsageError(
        Problem(
            code="file",
            message=message,
            place=Place(path),
            next_step="give a smaller one"
            if is_too_large
            else "give its content on standard input, as -",
        )
    )


def read_spec(path: str, overrides: tuple[KeyOverride, ...] = ()) -> SpecFile:
    """Read and validate a spec file, with some keys as they are said elsewhere."""
    # Imported here, so that a command loads only what it uses.
    from planner.spec.load import load_spec

    file_bytes = read_file(path, MAX_DOCUMENT_BYTES)
    return SpecFile(
        path=path,
        file_bytes=file_bytes,
        spec=load_spec(file_bytes, path, overrides),
        overrides=overrides,
    )


def _similar_file(path: Path) -> str | None:
    """Return the name of a file beside a path that is close to it, if one is.

    Names are compared without their ending, which makes all of them alike. Another ending is one
    of another sort of file, so the rest of its name has to be the same.
    """
    try:
        names = {
            entry.stem: entry.name
            for entry in path.parent.iterdir()
            if path.suffix in ("", entry.suffix) or entry.stem == path.stem
        }
    except OSError:
        return None
    stem = closest(path.stem, names)
    return None if stem is None else names[stem]


def spec_folder_reader(
    path: str, digests: dict[str, str] | None = None
) -> Callable[[str], bytes]:
    """Return a function that reads files, but only from the folder of the spec.

    The SHA-256 of each file that it reads is entered into `digests`.
    """
    spec_folder = (Path(path).parent if path != "-" else Path()).resolve()

    def read_beside(file_name: str) -> bytes:
        file_path = (spec_folder / file_name).resolve()
        # A spec of another author must not read this machine's files.
        if spec_folder not in file_path.parents:
            problem = Problem(
                code="file",
                message=f"{file_name} lies outside the folder of the spec",
                place=Place(path),
                next_step="put the file beside the spec",
            )
            raise UsageError(problem)
        is_document = file_path.suffix == ".json"
        file_bytes = read_file(
            str(file_path),
            MAX_DOCUMENT_BYTES if is_document else MAX_FILE_BYTES,
        )
        if digests is not None:
            digests[file_name] = hashlib.sha256(file_bytes).hexdigest()
        return file_bytes

    return read_beside


def open_catalog(path: str | None, world: World | None) -> Catalog:
    """Return the catalog of a manifest, or the one that plans use.

    Raises CatalogError when that one is damaged or has vanished: another one is never used in its
    place. With a simulated world the prices are those of the world.
    """
    source: PriceSource
    if path:
        from providers.catalog.load import SnapshotPrices

        source = SnapshotPrices(Path(path), cache_folder())
    else:
        source = open_catalogs().price_source(cache_folder())
    if world is not None:
        from providers.simulated.world import WorldPrices

        source = WorldPrices(world, source)
    return source.catalog()


def open_catalogs() -> CatalogFolder:
    """Return the folder of catalogs: TONNAGE_CATALOGS, or one in the user's data folder."""
    from providers.catalog.folder import CatalogFolder

    named_folder = os.environ.get("TONNAGE_CATALOGS")
    if named_folder:
        return CatalogFolder(Path(named_folder))
    from platformdirs import user_data_path

    return CatalogFolder(
        user_data_path("tonnage", appauthor=False) / "catalogs"
    )


def own_catalog(
    catalog: Catalog,
    prices_path: str | None,
    file_bytes: bytes | None = None,
) -> Catalog:
    """Return a catalog at the prices of a file of one's own; as it is without a file.

    `file_bytes` is what the file holds, where it is not the one on this machine.
    """
    if prices_path is None:
        return catalog
    from planner.market.own_prices import read_own_prices

    if file_bytes is None:
        file_bytes = read_file(
            prices_path,
            MAX_DOCUMENT_BYTES,
            begin="see its keys: tonnage schema prices",
        )
    return read_own_prices(file_bytes, prices_path).applied(catalog)


def own_live_catalog(
    catalog: Catalog, options: PlanningOptions, live: LiveInputs | None
) -> Catalog:
    """Return a catalog as an account has it, where it was asked, at prices of one's own."""
    if live is not None:
        from planner.market.live_catalog import with_live

        catalog = with_live(
            catalog, live.facts, live.standing_counts, live.caps
        )
    own_prices = options.contents.get(options.prices or "")
    return own_catalog(catalog, options.prices, own_prices)


class LastCatalog:
    """The catalog of the spec before, which is that of the next one where it is asked alike."""

    def __init__(self) -> None:
        self._source: Catalog | None = None
        self._asked: tuple[object, ...] = ()
        self._own: Catalog | None = None

    def own_live(
        self,
        catalog: Catalog,
        options: PlanningOptions,
        live: LiveInputs | None,
    ) -> Catalog:
        """Return what `own_live_catalog` returns."""
        asked = (options, live)
        if (
            self._own is None
            or self._source is not catalog
            or self._asked != asked
        ):
            self._source, self._asked = catalog, asked
            self._own = own_live_catalog(catalog, options, live)
        return self._own


def cache_folder() -> Path | None:
    """Return where a start keeps what the next one needs: TONNAGE_CACHE, or the user's folder.

    An empty TONNAGE_CACHE keeps nothing.
    """
    named_folder = os.environ.get("TONNAGE_CACHE")
    if named_folder is not None:
        return Path(named_folder) if named_folder else None
    from platformdirs import user_cache_path

    return user_cache_path("tonnage", appauthor=False)


def open_world(simulate: str | None) -> World | None:
    """Return the simulated world of --simulate; None without that option."""
    if simulate is None:
        return None
    from providers.simulated.world import default_world

    if simulate == DEFAULT_WORLD:
        return default_world()
    from providers.simulated.world_file import read_world

    return read_world(read_file(simulate, MAX_DOCUMENT_BYTES), simulate)


def solve_settings(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    memory: Memory | None = None,
    digests: dict[str, str] | None = None,
) -> SolveSettings:
    """Return what solving takes besides the spec: offers that a stack can be built from.

    `memory` is what other specs have left for this one. The SHA-256 of each file that the spec
    names is entered into `digests`.
    """
    from planner.market.owned_check import check_owned
    from planner.market.region import check_regions
    from planner.market.regret import futures
    from planner.market.small_cloud import with_small_clouds
    from planner.solve.settings import Memory, SolveSettings
    from stacks.spec.table import unsupported_reason

    catalog = with_small_clouds(catalog, spec_file.spec.where.clouds)
    check_regions(spec_file.spec.where, catalog)
    read_beside = spec_file.folder_reader(digests)
    check_owned(spec_file.spec, catalog, read_beside)
    usage = spec_file.spec.stated_usage
    return SolveSettings(
        catalog=catalog.using(usage),
        unbuilt_reason=unsupported_reason,
        read_file=read_beside,
        alternative_count=options.alternatives,
        confidence=load_confidence(options),
        training_correction=load_training_correction(options),
        futures=futures(options.stops_after),
        run_all=run_in_parallel,
        # What others have left is of bills with what is assumed.
        memory=memory if memory and not usage else Memory(),
    )


def load_confidence(options: PlanningOptions) -> Confidence:
    """Return the wished confidence, and what a calibration taught."""
    from planner.perf.serving.replica import Confidence

    level = options.confidence / 100
    calibration_path = options.calibration
    if not calibration_path:
        return Confidence(level)
    from planner.estimate.calibration_file import parse_correction

    # A calibration of training says nothing of answers.
    if load_training_correction(options) is not None:
        return Confidence(level)
    correction = parse_correction(
        options.read_own(calibration_path, begin=BEGIN_CALIBRATION),
        calibration_path,
    )
    return Confidence(level, correction)


def load_training_correction(
    options: PlanningOptions,
) -> TrainingCorrection | None:
    """Return what a calibration taught of training; None where it is of something else."""
    if not options.calibration:
        return None
    from planner.estimate.training_calibration import parse_training

    return parse_training(
        options.read_own(options.calibration, begin=BEGIN_CALIBRATION),
        options.calibration,
    )


class PlanningOptions(Struct, frozen=True, kw_only=True):
    """Options that the planning commands share.

    catalog       manifest of a catalog; None for the embedded one
    simulate      world file or `default`; None for real clouds
    stack         stack name; None for the spec's name, without its state
    alternatives  number of alternatives of each sort
    confidence    confidence that the limits are met, percent
    calibration   calibration file
    stops_after   months after which the workload may end
    prices        file with prices of one's own
    engine        pulumi or simulated
    backend       URL of Pulumi's state
    is_live       whether the account is asked what it may have
    replay        file with what clouds answered, instead of asking them
    tells_shortfalls  whether a plan says which quotas keep it from a cheaper fleet
    policy_pack   folders with policies of Pulumi
    contents      what files of these options hold elsewhere than on this machine
    """

    catalog: str | None = None
    simulate: str | None = None
    stack: str | None = None
    alternatives: int = 3
    confidence: int = 90
    calibration: str | None = None
    stops_after: Decimal | None = None
    prices: str | None = None
    engine: str | None = None
    backend: str | None = None
    is_live: bool = False
    replay: str | None = None
    tells_shortfalls: bool = True
    policy_pack: tuple[str, ...] = ()
    contents: dict[str, bytes] = field(default_factory=dict)

    def read_own(
        self, path: str, *, begin: str = "check the path of the flag"
    ) -> bytes:
        """Return what a file of one of the options holds."""
        content = self.contents.get(path)
        if content is not None:
            return content
        return read_file(path, MAX_DOCUMENT_BYTES, begin=begin)

    @property
    def flags(self) -> str:
        """The flags with which a suggested command addresses the same clouds and engine."""
        texts = []
        if self.simulate is not None:
            is_default = self.simulate == DEFAULT_WORLD
            texts.append(
                "--simulate" if is_default else f"--simulate {self.simulate}"
            )
        if self.engine:
            texts.append(f"--engine {self.engine}")
        if self.backend:
            texts.append(f"--backend {self.backend}")
        return "".join(f" {text}" for text in texts)

    @property
    def uses_stack_state(self) -> bool:
        """Whether the plan starts from the state of a stack."""
        return self.simulate is not None or self.stack is not None


def standing_stack(stack_name: str, options: PlanningOptions) -> StackStatus:
    """Return a stack as its state has it. Raises MissingError without one of the name."""
    engine = open_engine(options)
    stack_status = engine.stack_status(stack_name)
    if stack_status is None:
        raise MissingError(
            Problem(
                code="stack",
                message=f"no stack is named {stack_name}",
                next_step=did_you_mean(
                    stack_name,
                    engine.stack_names(),
                    otherwise=f"see all stacks: tonnage list{options.flags}",
                ),
            )
        )
    return stack_status


def readable_stacks(engine: StackEngine) -> Iterator[StackStatus]:
    """Yield all stacks of an engine; of one whose state is damaged only the problem is told."""
    from planner.cli.failure import print_problems

    for found in found_stacks(engine):
        if isinstance(found, UsageError):
            print_problems(found.problems)
        else:
            yield found


def found_stacks(engine: StackEngine) -> Iterator[StackStatus | UsageError]:
    """Yield all stacks of an engine; of one whose state is damaged the problem."""
    for stack_name in engine.stack_names():
        try:
            status = engine.stack_status(stack_name)
        except UsageError as error:
            yield error
            continue
        # One may be destroyed meanwhile.
        if status is not None:
            yield status


def open_bucket(status: StackStatus, options: PlanningOptions) -> Bucket:
    """Return the bucket of a stack; on simulated clouds it is a folder beside their state."""
    from stacks.operate.standing import bucket_of

    bucket_folder = STATE_FOLDER / "simulated" / "buckets"
    return bucket_of(
        status, bucket_folder if options.simulate is not None else None
    )


def simulated_folder(engine_name: str | None) -> Path:
    """Return where an engine keeps the simulated clouds: each has its own."""
    return STATE_FOLDER / (
        "pulumi-simulated" if engine_name == "pulumi" else "simulated"
    )


def open_engine(options: PlanningOptions) -> StackEngine:
    """Return the engine that the options select.

    Real clouds always use Pulumi. Simulated clouds use the in-process engine, or Pulumi when
    --engine selects it.
    """
    world = open_world(options.simulate)
    # The in-process engine needs no Pulumi, but it has no real clouds.
    engine_name = options.engine or ("simulated" if world else "pulumi")
    if engine_name == "simulated":
        if world is None:
            problem = Problem(
                code="engine",
                message="the simulated engine works on simulated clouds only",
                next_step="add --simulate",
            )
            raise UsageError(problem)
        if options.policy_pack:
            raise _no_policy_packs()
        from stacks.engine.backend import open_store
        from stacks.engine.simulated import SimulatedEngine

        folder = simulated_folder(engine_name)
        return SimulatedEngine(
            world, folder, open_store(options.backend, folder)
        )
    from stacks.engine.pulumi.engine import PulumiEngine

    engine = PulumiEngine(
        simulated_folder("pulumi") if world else STATE_FOLDER / "pulumi",
        backend=options.backend,
        world_source=options.simulate,
        environment=dict(os.environ),
    )
    engine.session.policy_packs = options.policy_pack
    return engine


def _no_policy_packs() -> UsageError:
    return UsageError(
        Problem(
            code="engine",
            message="the simulated engine reads no policy packs: they are programs of Pulumi",
            next_step="add --engine pulumi, or judge plans by a policy.yaml",
        )
    )
