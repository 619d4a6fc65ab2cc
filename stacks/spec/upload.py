"""What machines wait for in their bucket before they begin to work."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

MODEL_KINDS: Final = ("inference", "batch")


class UploadRule(Struct, frozen=True):
    """An upload: where it is in the bucket, and what it must have.

    prefix    of its keys, with a slash at its end
    required  names of files, in which * stands for other letters
    """

    prefix: str
    required: tuple[str, ...]


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
