"""What Google has measured of models: the profiles of GKE Inference Quickstart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.estimate.quickstart import MODEL_SERVER, QuickstartProfile
from providers.gcp.client import open_account, pages, understood
from providers.live.rest import send

if TYPE_CHECKING:
    from requests import Session

RECOMMENDER_URL: Final = "https://gkerecommender.googleapis.com/v1"
# The service belongs to no project, and wants to know on whose quota it is asked.
PAYER_HEADER: Final = "X-Goog-User-Project"
MODELS_AT_ONCE: Final = 100


class _ModelPage(Struct, frozen=True):
    models: tuple[str, ...] = ()


class _ProfileAnswer(Struct, frozen=True):
    profile: tuple[QuickstartProfile, ...] = ()


def profiled_models() -> list[str]:
    """Return the models that have profiles. Raises OSError for an empty list."""
    url = f"{RECOMMENDER_URL}/models:fetch?pageSize={MODELS_AT_ONCE}"
    models = [
        model
        for page in pages(_session(), url)
        for model in understood(page, _ModelPage).models
    ]
    if not models:
        raise OSError("the list has no models")
    return models


def measured_profiles(model: str) -> list[dict[str, Any]]:
    """Return all loads that vLLM was measured at with a model, of its latest release.

    `profiles:fetch` would answer only the load of the highest throughput.
    """
    server = {"model": model, "modelServer": MODEL_SERVER}
    try:
        answer = send(
            _session(),
            "POST",
            f"{RECOMMENDER_URL}/benchmarkingData:fetch",
            {"modelServerInfo": server},
        )
    except FileNotFoundError:
        # The model is known, and nobody has measured it with vLLM.
        return []
    # An answer that cannot be read later is not written down.
    understood(answer, _ProfileAnswer)
    return list(answer.get("profile", ()))


def _session() -> Session:
    account = open_account()
    account.session.headers[PAYER_HEADER] = account.project
    return account.session
