"""Reads a Hugging Face config.json into an architecture.

Covers Llama, Qwen, Mistral, Mixtral, DeepSeek V3 and R1 (MLA), Gemma (sliding window), gpt-oss
and Phi. Parameters are counted from the shapes, so no weights are needed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from planner.errors import Place, Problem, SpecError
from planner.facts.llm import Llm

KNOWN: Final = {
    "llama",
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "mistral",
    "mixtral",
    "deepseek_v3",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "phi",
    "phi3",
}


def read(raw: bytes, path: str) -> Llm:
    """Return the architecture that a config.json describes.

    Raises SpecError: not JSON, an architecture that is not known, or a missing or absurd size.
    """
    place = Place(path)
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError) as error:
        _refuse(place, f"not JSON: {error}", cause=error)
    if not isinstance(config, dict):
        _refuse(place, "not a JSON object")
    inner = config.get("text_config", {})
    if not isinstance(inner, dict):
        _refuse(place, "text_config is not a JSON object")
    config = {**config, **inner}
    kind = str(config.get("model_type", ""))
    if kind not in KNOWN:
        _refuse(place, f"architecture '{kind[:40]}' is not known")
    return _Config(config, place).llm(kind)


def _refuse(place: Place, message: str, cause: Exception | None = None) -> Any:
    known = ", ".join(sorted(KNOWN))
    step = f"give a config.json of one of: {known}"
    raise SpecError(
        Problem(code="config", message=message, place=place, next_step=step)
    ) from cause


class _Config:
    """Typed access to the keys of one config."""

    def __init__(self, config: dict[str, Any], place: Place) -> None:
        self.config, self.place = config, place

    def size(self, key: str, *others: str, default: int | None = None) -> int:
        for name in (key, *others):
            value = self.config.get(name)
            if (
                isinstance(value, int)
                and not isinstance(value, bool)
                and 0 <= value <= 10**8
            ):
                return value
            if value is not None:
                _refuse(self.place, f"{name} is not a size: {str(value)[:40]}")
        if default is None:
            _refuse(self.place, f"{key} is missing")
        return default or 0

    def llm(self, kind: str) -> Llm:
        hidden, heads = (
            self.size("hidden_size"),
            self.size("num_attention_heads"),
        )
        layers = self.size("num_hidden_layers")
        if not (hidden and heads and layers):
            _refuse(self.place, "hidden_size, heads and layers must be above 0")
        experts = self.size(
            "num_local_experts", "num_experts", "n_routed_experts", default=0
        )
        mla = self.size("kv_lora_rank", default=0)
        rope = self.size("qk_rope_head_dim", default=0)
        ffn = self.size("intermediate_size")
        window, window_layers = self._window(kind, layers)
        draft: dict[str, Any] = {
            "model": _name(self.config.get("_name_or_path"), kind),
            "family": kind,
            "layers": layers,
            "hidden": hidden,
            "ffn": ffn,
            "heads": heads,
            "kv_heads": self.size("num_key_value_heads", default=heads),
            "head_dim": (self.size("qk_nope_head_dim") + rope)
            if mla
            else self.size("head_dim", default=hidden // heads),
            "vocab": self.size("vocab_size"),
            "experts": experts,
            "experts_per_token": self.size(
                "num_experts_per_tok", "experts_per_token", default=0
            ),
            "moe_ffn": self.size("moe_intermediate_size", default=ffn)
            if experts
            else 0,
            "shared_experts": self.size("n_shared_experts", default=0),
            "dense_layers": self.size("first_k_dense_replace", default=0)
            if experts
            else 0,
            "kv_lora_rank": mla,
            "qk_rope_dim": rope,
            "v_head_dim": self.size("v_head_dim", default=0),
            "window": window,
            "window_layers": window_layers,
            "tied": bool(
                self.config.get("tie_word_embeddings", kind.startswith("gemma"))
            ),
            "max_context": self.size(
                "max_position_embeddings", default=131_072
            ),
            "mlp_matrices": 2 if kind == "phi" else 3,
            "precision": self._precision(),
            "source": f"config.json ({kind})",
        }
        self._whole(draft)
        return _counted(draft, self._attention(draft))

    def _whole(self, d: dict[str, Any]) -> None:
        """Refuse shapes that no model has, and by which something would be divided by 0."""
        for key in ("kv_heads", "head_dim", "ffn", "vocab", "max_context"):
            if not d[key]:
                _refuse(self.place, f"{key} must be above 0")
        if d["kv_heads"] > d["heads"]:
            _refuse(
                self.place, f"{d['kv_heads']} kv heads for {d['heads']} heads"
            )
        if d["experts"] and not 0 < d["experts_per_token"] <= d["experts"]:
            _refuse(
                self.place,
                f"{d['experts_per_token']} of {d['experts']} experts per token",
            )

    def _attention(self, d: dict[str, Any]) -> float:
        """Parameters of the attention of one layer."""
        hidden, heads = d["hidden"], d["heads"]
        if not d["kv_lora_rank"]:
            return float(2 * hidden * d["head_dim"] * (heads + d["kv_heads"]))
        query = self.size("q_lora_rank", default=0)
        width = heads * d["head_dim"]
        into = hidden * query + query * width if query else hidden * width
        nope = d["head_dim"] - d["qk_rope_dim"]
        latent = hidden * (d["kv_lora_rank"] + d["qk_rope_dim"])
        out = d["kv_lora_rank"] * heads * (nope + d["v_head_dim"])
        return float(into + latent + out + heads * d["v_head_dim"] * hidden)

    def _window(self, kind: str, layers: int) -> tuple[int, int]:
        """Length of the sliding window, and in how many layers it acts."""
        window = self.config.get("sliding_window")
        if (
            not isinstance(window, int)
            or self.config.get("use_sliding_window") is False
        ):
            return 0, 0
        kinds = self.config.get("layer_types")
        if isinstance(kinds, list):
            return window, sum(k == "sliding_attention" for k in kinds)
        pattern = self.size(
            "sliding_window_pattern",
            default={"gemma3": 6, "gemma3_text": 6}.get(kind, 2),
        )
        if kind in ("gemma2", "gemma3", "gemma3_text", "gpt_oss") and pattern:
            return window, layers - layers // pattern
        return (window, layers) if kind in ("mistral", "phi3") else (0, 0)

    def _precision(self) -> str:
        quantization = self.config.get("quantization_config") or {}
        method = (
            str(quantization.get("quant_method", ""))
            if isinstance(quantization, dict)
            else ""
        )
        return {"fp8": "fp8", "mxfp4": "mxfp4"}.get(method, "bf16")


def _counted(draft: dict[str, Any], attention: float) -> Llm:
    """Add total and active parameters, counted from the shapes (norms and biases ignored)."""
    shell = Llm(params=0.0, active=0.0, **draft)
    dense_mlp = shell.mlp_matrices * shell.hidden * shell.ffn
    dense_layers = shell.layers - shell.moe_layers
    shared = shell.moe_layers * shell.shared_experts * shell.mlp_matrices
    router = shell.moe_layers * shell.hidden * shell.experts
    every = (
        shell.layers * attention
        + dense_layers * dense_mlp
        + shared * shell.hidden * shell.moe_ffn
        + router
        + shell.embedding
    )
    return Llm(
        params=every + shell.expert, active=every + shell.expert_active, **draft
    )


def _name(given: object, kind: str) -> str:
    """A name that is safe in a script: the last part of a path, of letters, digits, . _ and -."""
    last = str(given or kind).rstrip("/").rsplit("/", 1)[-1].lower()
    return re.sub(r"[^a-z0-9._-]", "-", last)[:80].strip(".-") or kind
