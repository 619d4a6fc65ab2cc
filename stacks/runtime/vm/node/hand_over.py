"""How the proxy lets one engine compute a prompt and another one answer.

The protocol is that of vLLM 0.19 (tests/v1/kv_connector/nixl_integration/toy_proxy_server.py):
an engine of the first pool is asked for one token, and says where the cache of the prompt lies. An
engine of the second pool gets the request with that, fetches the cache and makes all tokens. What
is not one prompt with one answer, and what no engine of the first pool takes, an engine of the
second pool answers alone: it computes the prompt too.

The script runs in the proxy (njs) and only handles the first step. The answer comes from the
second pool through the proxy itself, token by token.
"""

from __future__ import annotations

SCRIPT_NAME = "hand_over.js"
# A body that is longer than the proxy keeps in memory could not be read. Four bytes make a token,
# so this is a context of eight million tokens.
BODY_LIMIT = "32m"
# Where the cache lies: a number for each page of 16 tokens.
REPLY_LIMIT = "4m"

# A key that stands twice in an object counts as it stands last: so nothing else of a request is
# written anew, and a client cannot say where a cache lies. Empty lines do not reach a machine.
SCRIPT = """const ONE_TOKEN = {
  max_tokens: 1, max_completion_tokens: 1, min_tokens: 0, stream: false, stream_options: null,
  kv_transfer_params: {
    do_remote_decode: true, do_remote_prefill: false, remote_engine_id: null,
    remote_block_ids: null, remote_host: null, remote_port: null,
  },
};
function isHandedOver(asked) {
  const isMany = (asked.n || 1) > 1 || (asked.best_of || 1) > 1;
  const isTold = asked.echo || asked.prompt_logprobs || asked.use_beam_search;
  const isList = Array.isArray(asked.prompt) && typeof asked.prompt[0] !== "number";
  return !isMany && !isTold && !isList;
}
function withKeys(body, keys) {
  const end = body.lastIndexOf("}");
  return body.slice(0, end) + "," + JSON.stringify(keys).slice(1) + body.slice(end + 1);
}
function read(body) {
  try {
    const asked = JSON.parse(body);
    const isObject = asked !== null && typeof asked === "object" && !Array.isArray(asked);
    return isObject && Object.keys(asked).length ? asked : null;
  } catch (error) {
    return null;
  }
}
async function answer(r) {
  const body = r.requestText || "";
  const asked = read(body);
  let handed = null;
  if (asked !== null && isHandedOver(asked)) {
    try {
      const options = { method: "POST", body: withKeys(body, ONE_TOKEN) };
      const reply = await r.subrequest("/prompts" + r.uri, options);
      if (reply.status === 200) handed = JSON.parse(reply.responseText).kv_transfer_params || null;
    } catch (error) {
      r.warn("a prompt is computed where it is answered: " + error.message);
    }
  }
  r.variables.handed_body =
    asked === null ? body : withKeys(body, { kv_transfer_params: handed });
  r.internalRedirect("@answers");
}
export default { answer, isHandedOver, withKeys, read };
"""
# Before everything else of the configuration, and within its block of HTTP.
MODULES = "load_module modules/ngx_http_js_module.so;\n"
IMPORTS = """  js_path {folder};
  js_import hand_over from {script};
  js_var $handed_body "";
"""
LOCATIONS = """location ~ ^/v1/(chat/)?completions$ {{{gate}
      client_max_body_size {body};
      client_body_buffer_size {body};
      js_content hand_over.answer;
    }}
    location /prompts/ {{
      internal;
      subrequest_output_buffer_size {reply};
      proxy_pass http://prompts/;
    }}
    location @answers {{
      proxy_set_body $handed_body;
      proxy_pass http://engines;
    }}
    {paths}"""
GATE_LINE = """
      if ($has_key = 0) { return 401; }"""


def imports(folder: str) -> str:
    """Return what the configuration of the proxy says of the script in a folder."""
    return IMPORTS.format(folder=folder, script=SCRIPT_NAME)


def paths(other_paths: str, *, has_gate: bool) -> str:
    """Return what clients reach of the engines: requests by both pools, beside other paths."""
    return LOCATIONS.format(
        gate=GATE_LINE if has_gate else "",
        body=BODY_LIMIT,
        reply=REPLY_LIMIT,
        paths=other_paths,
    )
