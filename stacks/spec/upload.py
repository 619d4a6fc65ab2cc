"""What machines need before they begin to work, and where they get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.spec.model import SECRET_SCHEME
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.spec.model import ModelSpec

MODEL_KINDS: Final = ("inference", "batch")
DEFAULT_REVISION: Final = "main"


class UploadRule(Struct, frozen=True):
    """An upload: where it is in the bucket, and what it must have.

    prefix    of its keys, with a slash at its end
    required  names of files, in which * stands for other letters
    """

    prefix: str
    required: tuple[str, ...]


class BucketPlace(Struct, frozen=True):
    """A folder of a bucket that the account has already.

    bucket  its name; of Azure container@account.dfs.core.windows.net
    prefix  of the keys, with a slash at its end unless it is empty
    """

    bucket: str
    prefix: str


def bucket_place(address: str) -> BucketPlace | None:
    """Return the folder that an address such as s3://bucket/folder names; none for a word."""
    _, has_scheme, bucket_path = address.partition("://")
    if not has_scheme:
        return None
    bucket, _, path = bucket_path.partition("/")
    path = path.strip("/")
    return BucketPlace(bucket, f"{path}/" if path else "")


class HubWeights(Struct, frozen=True):
    """Weights on Hugging Face.

    token  name of the secret that opens the repository, empty when it is open
    """

    repository: str
    revision: str
    token: str


def hub_weights(model: ModelSpec) -> HubWeights | None:
    """Return what machines fetch from Hugging Face; nothing when they wait for the bucket.

    The name of a known model is no repository: several share one architecture. Raises SpecError
    when none is named.
    """
    place, _, revision = model.weights.partition("@")
    kind, _, repository = place.partition(":")
    if kind != "hf":
        return None
    if not repository and model.name is not None and "/" in model.name:
        repository = model.name
    if not repository:
        raise stack_error(
            "model.weights: hf needs a repository",
            "write weights: hf:owner/name",
        )
    return HubWeights(
        repository, revision or DEFAULT_REVISION, secret_name(model.token)
    )


def secret_name(address: str | None) -> str:
    """Return the name of a secret of the cloud's store; empty for none."""
    return (address or "").removeprefix(SECRET_SCHEME)


def model_upload(model_name: str) -> UploadRule:
    """Return the upload of the weights of a model, in the form of Hugging Face."""
    return UploadRule(
        f"models/{model_name}/",
        # Uploads in the order of names bring the tokenizer last.
        ("config.json", "model.safetensors", "tokenizer*"),
    )


def job_upload() -> UploadRule:
    """Return the upload of the program of a training."""
    return UploadRule("job/", ("train.py",))
