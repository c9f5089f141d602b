"""Invariant tested: each mistake of a user ends as one sentence in plain English on standard error,
with the documented exit status, and with a next command where one exists.

No mistake shows a traceback, raw Python, status 70, or the same text twice; none succeeds silently.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from workers import Command

import shmcache
from shmcache.memory.locations import SharedMemory
from shmcache.memory.segments import PREFIX, Place
from shmcache.testing import ApiServer

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
DEAD = "http://127.0.0.1:1"
OK, MISSING, USAGE, NO_CACHE, NO_SERVER, FAILED, LATER, DENIED, WRONG = (
    0, 1, 2, 66, 69, 74, 75, 77, 78,
)  # fmt: skip
RAW = re.compile(
    r"Traceback|Errno|Error\b(?! )|Exception|<class|<shmcache|object has no|NoneType|None\b"
    r"|\bTrue\b|\bFalse\b|\{'|\bb'|\b0o\d|argument -|invalid \w+ value|\\x|\\n"
)
"""Python that a user should not see."""
STILTED = re.compile(
    r"\bis no\b|\bthere is none\b|\bis wanted\b|\bare wanted\b|\bsays?\b|\bsaid\b|\btold\b|\banew\b"
    r"|\bnobody\b|\bbeside\b|\bbehind\b|\bwhoever\b|\bstands\b|(^|: )(who|what) \w+"
)
STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (ERROR|WARNING) +")

pytestmark = pytest.mark.slow


class Mistake(NamedTuple):
    """A command line, and how it must end."""

    words: str
    status: int
    text: str
    """A part of the sentence; {cache} and other names are filled in."""


class World(NamedTuple):
    """A cache of pods and deployments, and a server with more resources."""

    cache: str
    url: str
    folder: str
    denied: str
    refused: str
    plain: str
    """The URL without its scheme."""

    def fill(self, text: str) -> str:
        for name, value in self._asdict().items():
            text = text.replace("{" + name + "}", str(value))
        return text


class Ended(NamedTuple):
    status: int
    out: str
    err: str


def shm(world: World, words: list[str], **environment: str) -> Ended:
    """Runs `shmcache WORDS` to its end, without this machine's configuration."""
    known = {key: os.environ[key] for key in ("PATH", "LANG", "LC_ALL") if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "shmcache", *words],
        cwd=world.folder,
        env={**known, "HOME": world.folder, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


KUBECONFIG = """apiVersion: v1
kind: Config
current-context: x
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
clusters: [{{name: {cluster}, cluster: {{server: '{server}', {more}}}}}]
users: [{{name: u, user: {{{user}}}}}]
"""
PLUGIN = (
    "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin,"
    " interactiveMode: Never}"
)


def kubeconfig(
    cluster: str = "c", server: str = "https://127.0.0.1:1", more: str = "", user: str = ""
) -> str:
    """A file that is valid but for what is given."""
    return KUBECONFIG.format(cluster=cluster, server=server, more=more, user=user)


FILES = {
    "bad.toml": "name = ",
    "binary.toml": "\udcff",
    "typo.toml": "nmae = 'x'\n[resources.pods]",
    "section.toml": "[memroy]\nseats = 1\n[resources.pods]",
    "label.toml": "[resources.pods]\nlabel = 'a'",
    "number.toml": "requests_per_second = 'many'\n[resources.pods]",
    "table.toml": "resources = 5",
    "seats.toml": "[memory]\nseats = 0\n[resources.pods]",
    "ring.toml": "[memory]\nring_slots = 1000\n[resources.pods]",
    "age.toml": "max_age = 5\n[resources.pods]",
    "empty.toml": "",
    "indices.toml": "[resources.pods.indices]\n'' = '15'",
    "index.toml": "[resources.pods.indices]\nnode = 15",
    "twice.toml": "[resources.pods]\n[resources.po]",
    "backoff.toml": "[reflector]\nbackoff_initial = 40\n[resources.pods]",
    "nan.toml": "[reflector]\nsilence = nan\n[resources.pods]",
    "config": "not: a: kubeconfig",
    "empty-config": "",
    "tokens": "only-a-token\n",
    "broken.py": "def f(:",
    "template": "{.items[",
    "columns": "NAME\n",
    "no-cluster": kubeconfig(cluster="other"),
    "no-port": kubeconfig(server="https://127.0.0.1:port"),
    "no-authority": kubeconfig(more="certificate-authority: /no/ca.pem"),
    "no-base64": kubeconfig(more="certificate-authority-data: '%%%'"),
    "no-plugin": kubeconfig(user=PLUGIN),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("mistakes")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    cache = f"test-{os.getpid()}-mistakes"
    resources: list[shmcache.Resource | str] = [shmcache.Resource("pods"), "deployments.apps"]
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer(seed=1))
        guarded = stack.enter_context(ApiServer(seed=1, tokens={"good": "ann"}))
        denied = str(folder / "denied")
        Path(denied).write_text(Path(guarded.kubeconfig(denied)).read_text())
        refused = str(folder / "refused")
        Path(refused).write_text(Path(denied).read_text().replace("good", "expired"))
        guarded.access.deny("ann", "watch", "pods")
        writer = stack.enter_context(shmcache.Writer(cache, resources))
        writer.put("pods", "default/web-0", {"metadata": {"name": "web-0", "namespace": "default"}})
        writer.put("pods", "prod/api-0", {"metadata": {"name": "api-0", "namespace": "prod"}})
        yield World(
            cache, server.url, str(folder), denied, refused, server.url.removeprefix("http")
        )
    assert [] == SharedMemory().names(PREFIX + cache)


RUN = "--cache {cache}-other --server {url} --no-keep"
MISTAKES = [
    # ---- commands ----
    Mistake("", USAGE, "usage: shmcache COMMAND"),
    Mistake("gett pods", USAGE, "unknown command gett; did you mean get? (see `shmcache --help`)"),
    Mistake("frobnicate", USAGE, "unknown command frobnicate (see `shmcache --help`)"),
    Mistake("--hepl", USAGE, "unknown option --hepl; did you mean --help?"),
    Mistake("-x", USAGE, "unknown option -x"),
    Mistake("help gett", USAGE, "unknown command gett; did you mean get?"),
    Mistake("help get pods", USAGE, "unexpected argument 'pods' (see `shmcache --help`)"),
    Mistake("help --all", USAGE, "unknown option --all"),
    Mistake("version --output yaml", USAGE, "unexpected argument '--output'"),
    Mistake("--version extra", USAGE, "unexpected argument 'extra'"),
    Mistake("queue --cache {cache}", USAGE, "unknown command queue"),
    # ---- options ----
    Mistake("run pods --names e1", USAGE, "unknown option --names; did you mean --namespace?"),
    Mistake("run pods --field a=b", USAGE, "did you mean --field-selector?"),
    Mistake("get pods --namespaces a", USAGE, "did you mean --namespace?"),
    Mistake("get pods --labels a=b", USAGE, "unknown option --labels"),
    Mistake("get pods -n", USAGE, "--namespace needs a value (see `shmcache get --help`)"),
    Mistake("get pods -o", USAGE, "--output needs a value"),
    Mistake("get", USAGE, "RESOURCE is missing"),
    Mistake("watch", USAGE, "RESOURCE is missing"),
    Mistake("get pods --raw /api", USAGE, "--raw is not supported: it reads the cache"),
    Mistake("get -f pod.yaml", USAGE, "-f is not supported: it takes resources and names"),
    Mistake("get pods --kubeconfig x", USAGE, "--kubeconfig is not supported: it reads the cache"),
    Mistake("get pods --template x", USAGE, "use -o jsonpath=TEMPLATE"),
    Mistake("gc --dry-run=client", USAGE, "--dry-run must be true or false, not 'client'"),
    Mistake("top extra", USAGE, "unexpected argument 'extra'"),
    Mistake("top -o yaml", USAGE, "--output must be json, not 'yaml'"),
    Mistake("top --delay soon", USAGE, "--delay must be a duration such as 90, '90s' or '2m'"),
    Mistake("gc --older-than x", USAGE, "--older-than must be a duration"),
    Mistake("get pods --timeout -5", USAGE, "--timeout must be a duration"),
    Mistake("demo --pods 0", USAGE, "--pods must be a whole number of at least 1, not '0'"),
    Mistake("demo --workers many", USAGE, "--workers must be a whole number of at least 1"),
    Mistake("bench --workers x", USAGE, "--workers must be a whole number of at least 1"),
    Mistake("serve -p 0", USAGE, "--processes must be a whole number of at least 1"),
    Mistake("serve --socket-mode 9", USAGE, "must be an octal file mode such as '0640', not '9'"),
    Mistake("serve --max-connections x", USAGE, "--max-connections must be a whole number"),
    Mistake("run pods --log-level loud", USAGE, "must be debug or info or warning or error"),
    Mistake("run pods --log-format xml", USAGE, "--log-format must be text or json, not 'xml'"),
    Mistake("get pods --no-header", USAGE, "did you mean --no-headers?"),
    Mistake("get pods --chunk-size many", USAGE, "--chunk-size must be a whole number of at"),
    Mistake("get pods --chunk-size=-1", USAGE, "--chunk-size must be a whole number of at least 0"),
    Mistake("get pods --show-managed-fields=perhaps", USAGE, "must be true or false"),
    Mistake("get pods --timeout 1h30", USAGE, "--timeout must be a duration"),
    Mistake("get pods --max-age 0 --cache {cache}", USAGE, "--max-age must be at least 90s"),
    Mistake("run pods --arena-min 4", USAGE, "unknown option --arena-min"),
    Mistake("run pods --log-level=", USAGE, "must be debug or info or warning or error, not ''"),
    Mistake("demo --pods 1e3", USAGE, "--pods must be a whole number of at least 1, not '1e3'"),
    Mistake("top --once=maybe", USAGE, "--once must be true or false, not 'maybe'"),
    Mistake("metrics -o xml", USAGE, "unknown option -o"),
    Mistake("inspect pods", USAGE, "unexpected argument 'pods'"),
    Mistake("verify --server {url}", USAGE, "--server is not supported: it reads the cache"),
    Mistake("completion bash zsh", USAGE, "unexpected argument 'zsh'"),
    Mistake("completion tcsh", USAGE, "must be bash or fish or zsh, not 'tcsh'"),
    # ---- caches ----
    Mistake("get pods --cache none-such", NO_CACHE, "`shmcache run pods --cache none-such`"),
    Mistake("top --cache none-such", NO_CACHE, "no cache named 'none-such'"),
    Mistake("inspect --cache none-such", NO_CACHE, "no cache named 'none-such'"),
    Mistake("metrics --cache none-such", NO_CACHE, "no cache named 'none-such'"),
    Mistake("watch pods --cache none-such", NO_CACHE, "no cache named 'none-such'"),
    Mistake("get pods --cache {cache}s", NO_CACHE, "did you mean --cache {cache}?"),
    Mistake("get pods --cache my~cache", USAGE, "'my~cache' is not the name of a cache"),
    Mistake("get pods --cache=", USAGE, "needs the name of a cache, not an empty string"),
    Mistake("get pods --cache /no/such/place", NO_CACHE, "no cache named '/no/such/place'"),
    Mistake("serve --cache my~cache", USAGE, "'my~cache' is not the name of a cache"),
    Mistake("get pods --cache {folder}/config", NO_CACHE, "/config is not a directory"),
    Mistake("get pods --cache {folder}/config/x", NO_CACHE, "/config is not a directory"),
    Mistake("inspect --cache {folder}/config", NO_CACHE, "/config is not a directory"),
    Mistake("get pods --cache ../{cache}", NO_CACHE, "did you mean --cache {cache}?"),
    Mistake("gc config", MISSING, "config is not a directory"),
    Mistake("gc /no/such/place", MISSING, "/no/such/place is not a directory"),
    # ---- get and watch ----
    Mistake("get pdos --cache {cache}", MISSING, "no resource 'pdos'; did you mean pods?"),
    Mistake("get widgets --cache {cache}", MISSING, "'widgets'; it has pods, deployments.apps"),
    Mistake("get nodes --cache {cache}", MISSING, "no nodes, only pods, deployments.apps; add it"),
    Mistake("watch pdos --cache {cache}", MISSING, "did you mean pods?"),
    Mistake("get pod/ --cache {cache}", USAGE, "'pod/' must be RESOURCE/NAME"),
    Mistake("get pod/a deploy --cache {cache}", USAGE, "'deploy' must be RESOURCE/NAME"),
    Mistake("get pods,deploy a --cache {cache}", USAGE, "names need exactly one resource"),
    Mistake("get pods a -l x=y --cache {cache}", USAGE, "names cannot be combined with -l"),
    Mistake("get pods a -A --cache {cache}", USAGE, "names cannot be combined with"),
    Mistake("get pods/web-0/extra --cache {cache}", USAGE, "must be RESOURCE/NAME"),
    Mistake("get deployment.app --cache {cache}", MISSING, "did you mean deployments.apps?"),
    Mistake("get pods.v2 --cache {cache}", MISSING, "did you mean pods?"),
    Mistake("get pods -o yaml=x --cache {cache}", USAGE, "did you mean yaml?"),
    Mistake("get pods --sort-by .metadata.nam --cache {cache}", MISSING, "no object has a value"),
    Mistake("get pods -o custom-columns-file={folder} --cache {cache}", USAGE, "Is a directory"),
    Mistake("watch pods -o wid --cache {cache}", USAGE, "did you mean wide?"),
    Mistake("get , --cache {cache}", USAGE, "',' names no resource"),
    Mistake("get pods web-9 --cache {cache}", MISSING, "pods 'web-9' not found in namespace"),
    Mistake("get pods api-0 --cache {cache}", MISSING, "found in prod (use -n)"),
    Mistake("get pods -n empty --cache {cache}", OK, "No resources found in empty namespace."),
    Mistake("get pods -l app=( --cache {cache}", USAGE, "invalid selector: unable to parse"),
    Mistake("get pods -l a==b==c --cache {cache}", USAGE, "invalid selector"),
    Mistake("get pods --field-selector a..b=1 --cache {cache}", USAGE, "invalid"),
    Mistake("get pods --field-selector nothing --cache {cache}", USAGE, "invalid selector"),
    Mistake("get pods -o nonsense --cache {cache}", USAGE, "-o must be wide, name, json, yaml"),
    Mistake("get pods -o yml --cache {cache}", USAGE, "did you mean yaml?"),
    Mistake("get pods -o go-template={{.x}} --cache {cache}", USAGE, "is not supported"),
    Mistake("get pods -o kyaml --cache {cache}", USAGE, "kyaml is not supported"),
    Mistake("get pods -o jsonpath --cache {cache}", USAGE, "-o jsonpath needs a value"),
    Mistake("get pods -o custom-columns= --cache {cache}", USAGE, "custom-columns needs a value"),
    Mistake("get pods -o custom-columns=NAME --cache {cache}", USAGE, "TITLE:PATH,TITLE:PATH"),
    Mistake("get pods -o jsonpath={.a[} --cache {cache}", USAGE, "invalid JSONPath"),
    Mistake("get pods -o jsonpath={range --cache {cache}", USAGE, "invalid JSONPath"),
    Mistake("get pods -o jsonpath={end} --cache {cache}", USAGE, "{end} without {range}"),
    Mistake("get pods -o jsonpath-file=none --cache {cache}", USAGE, "file cannot be read"),
    Mistake("get pods -o jsonpath-file=template --cache {cache}", USAGE, "invalid JSONPath"),
    Mistake("get pods -o custom-columns-file=columns --cache {cache}", USAGE, "a line of titles"),
    Mistake("get pods --sort-by {.a[ --cache {cache}", USAGE, "invalid JSONPath"),
    Mistake("get pods --max-age 5 --cache {cache}", USAGE, "--max-age"),
    Mistake("get pods --max-age 120 --cache {cache}", LATER, "pods"),
    # ---- serve and metrics ----
    Mistake("serve --listen nowhere", USAGE, "--listen must be HOST:PORT, :PORT or unix:PATH"),
    Mistake("serve --listen 127.0.0.1:99999", USAGE, "--listen must be HOST:PORT"),
    Mistake("serve --listen 127.0.0.1:http", USAGE, "not '127.0.0.1:http'"),
    Mistake("serve --listen [::1", USAGE, "--listen must be HOST:PORT"),
    Mistake("serve --listen ::1]:80", USAGE, "--listen must be HOST:PORT"),
    Mistake("metrics --listen [::1", USAGE, "--listen must be HOST:PORT"),
    Mistake("run pods --listen [::1 " + RUN, WRONG, "--listen must be HOST:PORT"),
    Mistake("serve --listen unix:" + "a" * 108 + " --cache {cache}", WRONG, "at most 107 bytes"),
    Mistake("metrics --listen unix:" + "a" * 108 + " --cache {cache}", WRONG, "at most 107 bytes"),
    Mistake("run pods --listen unix:" + "a" * 108 + " " + RUN, WRONG, "at most 107 bytes"),
    Mistake("serve --listen unix:", USAGE, "--listen must be HOST:PORT"),
    Mistake("serve --listen 0.0.0.0:0 --cache {cache}", WRONG, "--tokens or --review"),
    Mistake("serve --tls-cert x --cache {cache}", WRONG, "--tls-key"),
    Mistake("serve --tokens none --cache {cache}", WRONG, "No such file"),
    Mistake("serve --tokens {folder} --cache {cache}", WRONG, "Is a directory"),
    Mistake("serve --listen unix:/no/such/s --cache {cache}", WRONG, "/s: No such file"),
    Mistake("serve --listen unix:{folder}/config --cache {cache}", WRONG, "is not a socket"),
    Mistake("serve --listen no.such.host:9 --open-to-all --cache {cache}", WRONG, "not known"),
    Mistake("serve --tls-cert config --tls-key config --cache {cache}", WRONG, "in PEM form"),
    Mistake("serve --tls-cert none --tls-key none --cache {cache}", WRONG, "No such file"),
    Mistake("ui --listen nowhere", USAGE, "--listen must be HOST:PORT, :PORT or unix:PATH"),
    Mistake("ui --listen 192.0.2.1:9 --open-to-all --cache {cache}", WRONG, "192.0.2.1:9: Cannot"),
    Mistake("serve --proxy nowhere --cache {cache}", WRONG, "--proxy"),
    Mistake("metrics --listen nowhere", USAGE, "--listen must be HOST:PORT, :PORT or unix:PATH"),
    Mistake("metrics --listen 192.0.2.1:9 --cache {cache}", WRONG, "--listen 192.0.2.1:9"),
    # ---- relay ----
    Mistake("relay", WRONG, "no resources to cache: name some (`shmcache relay pods"),
    Mistake("relay pods", WRONG, "no API server is configured: use --server URL or --kubeconfig"),
    Mistake("relay pods --server nowhere", WRONG, "'nowhere' is not the URL of an API server"),
    Mistake("relay pods --server dns+kube --kubeconfig config", WRONG, "no URL after dns+"),
    Mistake("relay pods --server http://[", WRONG, "'http://[' is not the URL of an API server"),
    Mistake("relay pods --server dns+https://a:x", WRONG, "no URL after dns+, whose host is"),
    Mistake("relay pods --lease a --advertise http://[ --server {url}", WRONG, "not 'http://['"),
    Mistake("relay pods --kubeconfig none", WRONG, "kubeconfig none: the file does not exist"),
    Mistake("relay pods --transform nomod:f --server {url}", WRONG, "cannot be imported"),
    Mistake("relay secrets --server {url}", WRONG, "--allow-secrets"),
    Mistake("relay pods --upstream {url}", USAGE, "unknown option --upstream"),
    # ---- the past ----
    Mistake("get pods --at soon --cache {cache}", USAGE, "--at must be a duration"),
    Mistake("get pods --at 999 --cache {cache}", MISSING, "pods has no version yet"),
    Mistake("get pods --at 1s --recorder none", MISSING, "the directory none does not exist"),
    Mistake("get pods --recorder none --cache {cache}", USAGE, "replaces --cache"),
    Mistake("diff pods --cache {cache}", USAGE, "--since is missing"),
    Mistake("diff pods --since yesterday --cache {cache}", USAGE, "--since must be"),
    Mistake("blame pdos a/b --cache {cache}", MISSING, "did you mean pods?"),
    Mistake("replay config --cache {cache}-other", USAGE, "a flight record is a directory"),
    Mistake("diff pods --since 1s --cache {cache}", MISSING, "changes are not noted"),
    Mistake("diff pods --since 1s --recorder config", USAGE, "a flight record is a directory"),
    Mistake("blame pods --cache {cache}", USAGE, "blame needs one object: RESOURCE NAMESPACE/NAME"),
    Mistake("blame pods a/none --cache {cache}", MISSING, "pods 'a/none' not found"),
    Mistake("replay none", USAGE, "name it with --cache"),
    Mistake("replay none --cache {cache}-other", MISSING, "the directory none does not"),
    # ---- verify ----
    Mistake("verify pdos --cache {cache}", MISSING, "did you mean pods?"),
    Mistake("verify --cache none-such", NO_CACHE, "`shmcache run pods --cache none-such`"),
    Mistake("verify -o yaml --cache {cache}", USAGE, "--output must be json, not 'yaml'"),
    # ---- run: the command line ----
    Mistake("run", WRONG, "no resources to cache: name some (`shmcache run pods"),
    Mistake("run pods", WRONG, "no API server is configured: use --server URL or --kubeconfig"),
    Mistake("run --selector a=b", USAGE, "--selector needs the resources that it applies to"),
    Mistake("run pods --index pods:node", USAGE, "--index must be RESOURCE:NAME=PATH"),
    Mistake("run pods --index nodes:zone=x " + RUN, WRONG, "add it: `shmcache run pods nodes`"),
    Mistake("run pods --index pods:n=a..b[ " + RUN, WRONG, "'a..b[' is not a path"),
    Mistake("run pods --index pods:n=nomod:f " + RUN, WRONG, "cannot be imported"),
    Mistake("run pods po " + RUN, WRONG, "pods and po are the same resource; configure it once"),
    Mistake("run Pods_ " + RUN, WRONG, "'Pods_' is not a resource name"),
    Mistake("run pods= " + RUN, USAGE, "'pods=' must be RESOURCE, or RESOURCE=KEYS with --etcd"),
    Mistake("run =/registry/pods " + RUN, USAGE, "must be RESOURCE, or RESOURCE=KEYS"),
    Mistake("run pods --etcd 127.0.0.1:1", WRONG, "needs the prefix of its keys"),
    Mistake("run pods --arena-max -1 " + RUN, WRONG, "--arena-max must be a size such as"),
    Mistake("run pods,nodes " + RUN, WRONG, "name each resource by itself: pods nodes"),
    Mistake("run pods all " + RUN, WRONG, "'all' is a category: name each resource"),
    Mistake("run pods -n Bad_NS " + RUN, WRONG, "'Bad_NS' is not a namespace name"),
    Mistake("run pods -n a,a " + RUN, WRONG, "namespaces"),
    Mistake("run pods -l app=( " + RUN, WRONG, "pods: invalid label selector"),
    Mistake("run pods --field-selector a..b=1 " + RUN, WRONG, "pods: invalid field selector"),
    Mistake("run pods --transform json " + RUN, WRONG, "transform must be module:function"),
    Mistake("run pods --transform nomod:f " + RUN, WRONG, "nomod:f cannot be imported"),
    Mistake("run pods --index pods:n=json:nope " + RUN, WRONG, "json has no nope"),
    Mistake("run pods --index pods:n=os:sep " + RUN, WRONG, "index 'n': os:sep is not a function"),
    Mistake("run pods --transform broken:f " + RUN, WRONG, "broken fails: invalid syntax"),
    Mistake("run pods --transform json:nope " + RUN, WRONG, "json:nope cannot be imported: json"),
    Mistake("run pods --transform json:__name__ " + RUN, WRONG, "is not a function"),
    Mistake("run pods --max-bytes much " + RUN, WRONG, "--max-bytes must be a size such as"),
    Mistake("run pods --max-age 5 " + RUN, WRONG, "max_age must be at least 90 s, not 5 s"),
    Mistake("run pods --max-age soon " + RUN, WRONG, "--max-age must be a duration"),
    Mistake("run pods --mode 0777 " + RUN, WRONG, "must be 0600, 0640, 0604 or 0644, not 0777"),
    Mistake("run pods --mode rw " + RUN, WRONG, "--mode must be an octal file mode"),
    Mistake("run pods --seats 0 " + RUN, WRONG, "seats must be from 1 to 1,024, not 0"),
    Mistake("run pods --arena-max 1 " + RUN, WRONG, "arena_max must be from"),
    Mistake("run pods --ring-slots 1000 " + RUN, WRONG, "ring_slots must be a power of two"),
    Mistake("run pods --requests-per-second 0 " + RUN, WRONG, "must be at least 1"),
    Mistake("run secrets " + RUN, WRONG, "--allow-secrets"),
    Mistake("run secrets --allow-secrets --mode 0644 " + RUN, WRONG, "must have mode 0600"),
    Mistake("run pods --cache my~cache --server {url}", WRONG, "'my~cache' is not the name"),
    Mistake("run pods --cache /no/such/place --server {url}", WRONG, "`mkdir -p /no/such`"),
    Mistake("run pods --cache {folder}/config/x --server {url}", WRONG, "does not exist"),
    Mistake("run pods --cache {cache} --no-standby --server {url}", LATER, "has a writer"),
    Mistake("run pods --listen nowhere " + RUN, WRONG, "--listen must be HOST:PORT"),
    Mistake("run pods --listen unix:/no/such/s " + RUN, WRONG, "/s: No such file or directory"),
    Mistake("run pods --listen unix:{folder}/config " + RUN, WRONG, "is not a socket"),
    Mistake("run pods --listen 192.0.2.1:9 " + RUN, WRONG, "--listen 192.0.2.1:9"),
    Mistake("run pods --kubeconfig none", WRONG, "kubeconfig none: the file does not exist"),
    Mistake("run pods --kubeconfig config", WRONG, "kubeconfig config"),
    Mistake("run pods --kubeconfig {folder}", WRONG, "kubeconfig {folder}: Is a directory"),
    Mistake("run pods --kubeconfig config", WRONG, "kubeconfig config: not valid YAML (line 1)"),
    Mistake("run pods --kubeconfig empty-config", WRONG, "kubeconfig empty-config"),
    Mistake("run pods --kubeconfig {denied} --context none", WRONG, "none"),
    Mistake("run pods --replay none " + RUN, WRONG, "--replay: the recording none does not exist"),
    Mistake("run pods --record no/such/place " + RUN, WRONG, "does not exist"),
    Mistake("run pods --record /proc/none " + RUN, WRONG, "--record: /proc/none: "),
    Mistake("run pods --kubeconfig no-cluster", WRONG, "no cluster 'c'; the file has other"),
    Mistake("run pods --kubeconfig no-port", WRONG, "not 'https://127.0.0.1:port'"),
    Mistake("run pods --kubeconfig no-authority", WRONG, "/no/ca.pem: No such file"),
    Mistake("run pods --kubeconfig no-base64", WRONG, "certificate-authority-data is not base64"),
    Mistake("run pods --record config " + RUN, WRONG, "config exists already; choose a new file"),
    # ---- run: the file ----
    Mistake("run -c none.toml", WRONG, "configuration file none.toml cannot be read: No such file"),
    Mistake("run -c {folder}", WRONG, "cannot be read: Is a directory"),
    Mistake("run -c bad.toml", WRONG, "configuration file bad.toml is not valid TOML"),
    Mistake("run -c binary.toml", WRONG, "it is not UTF-8 text"),
    Mistake("run -c typo.toml", WRONG, "typo.toml: unknown key 'nmae'; did you mean 'name'?"),
    Mistake("run -c section.toml", WRONG, "unknown key 'memroy'; did you mean 'memory'?"),
    Mistake("run -c label.toml", WRONG, "[resources.pods]: unknown key 'label'; did you mean"),
    Mistake("run -c number.toml", WRONG, "requests_per_second must be a whole number, 0 or more"),
    Mistake("run -c table.toml", WRONG, "resources must be a table"),
    Mistake("run -c seats.toml", WRONG, "seats must be from 1 to 1,024, not 0"),
    Mistake("run -c ring.toml", WRONG, "ring_slots must be a power of two, not 1,000"),
    Mistake("run -c age.toml", WRONG, "max_age must be at least 90 s, not 5 s"),
    Mistake("run -c empty.toml", WRONG, "no resources to cache"),
    Mistake("run -c indices.toml", WRONG, "pods: an index's name must be"),
    Mistake("run -c index.toml", WRONG, "indices must be a table of strings"),
    Mistake("run -c twice.toml", WRONG, "pods and po are the same resource"),
    Mistake("run -c backoff.toml", WRONG, "backoff_cap must not be less than backoff_initial"),
    Mistake("run -c nan.toml", WRONG, "silence must be a duration"),
    # ---- run --validate ----
    Mistake("run pods --validate --server " + DEAD, NO_SERVER, "cannot be reached: Conn"),
    Mistake("run pdos --validate --server {url}", WRONG, "no resource 'pdos'; did you mean pods?"),
    Mistake("run pods.apps --validate --server {url}", WRONG, "did you mean pods?"),
    Mistake("run deployments.v9.apps --validate --server {url}", WRONG, "mean deployments.apps?"),
    Mistake("run pods --validate --kubeconfig no-plugin", WRONG, "no-such-plugin: No such file"),
    Mistake("run pods/exec --validate --server {url}", WRONG, "'pods/exec' is not a resource"),
    Mistake("run pods widgets --validate --server {url}", WRONG, "no resource 'widgets'"),
    Mistake("run pods --validate --server https{plain}", NO_SERVER, "during TLS"),
    Mistake("run pods --validate --kubeconfig {refused}", DENIED, "HTTP 401 Unauthorized"),
    Mistake("run pods --validate --kubeconfig {denied}", DENIED, "does not allow us to watch pods"),
    Mistake("run pods -n a,b --validate --kubeconfig {denied}", DENIED, "in namespace a"),
    Mistake("run pods --validate --transform nomod:f --server {url}", WRONG, "cannot be imported"),
    Mistake("run pods nodes --validate --server nowhere", WRONG, "not the URL of an API server"),
    # ---- bench ----
    Mistake("bench pdos --server {url}", WRONG, "pdos"),
    Mistake("bench pods --names x", USAGE, "unknown option --names"),
]  # fmt: skip


def words_of(world: World, text: str) -> list[str]:
    return [world.fill(word) for word in text.split()]


def sentences(err: str) -> list[str]:
    """The lines of standard error without their stamps and the names of their commands."""
    lines = [STAMP.sub("", line) for line in err.splitlines()]
    return [re.sub(r"^shmcache( \w+)?: ", "", line) for line in lines if line.strip()]


def check_sentences(err: str) -> None:
    assert not RAW.search(err), err
    found = sentences(err)
    assert len(found) == len(set(found)), f"printed twice: {err}"
    for line in found:
        assert not STILTED.search(line), line


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.words or "nothing")
def test_a_mistake_ends_with_one_sentence_and_its_status(world: World, mistake: Mistake) -> None:
    ended = shm(world, words_of(world, mistake.words))

    assert mistake.status == ended.status, ended
    assert world.fill(mistake.text) in ended.err, ended
    check_sentences(ended.err)
    if "--validate" not in mistake.words:
        assert "" == ended.out
    lines = [line for line in sentences(ended.err) if not line.startswith(("usage", "  "))]
    if mistake.words:
        problems = [line for line in lines if not line.startswith(("warning:", "draining"))]
        most = 2 if "-n a,b" in mistake.words else 1
        assert 1 <= len(problems) <= most, ended.err


ENVIRONMENTS: list[tuple[dict[str, str], int, str]] = [
    ({"SHMCACHE_SEATS": "few"}, WRONG, "SHMCACHE_SEATS must be a whole number, 0 or more"),
    ({"SHMCACHE_MODE": "rw"}, WRONG, "SHMCACHE_MODE must be an octal file mode"),
    ({"SHMCACHE_ARENA_MAX": "big"}, WRONG, "SHMCACHE_ARENA_MAX must be a size"),
    ({"SHMCACHE_MAX_AGE": "x"}, WRONG, "SHMCACHE_MAX_AGE must be a duration"),
    ({"SHMCACHE_KEEP": "perhaps"}, WRONG, "SHMCACHE_KEEP must be true or false, not 'perhaps'"),
    ({"SHMCACHE_LOG_LEVEL": "loud"}, WRONG, "SHMCACHE_LOG_LEVEL must be debug or info"),
    ({"SHMCACHE_NAME": "my cache"}, WRONG, "'my cache' is not the name of a cache"),
    ({"SHMCACHE_CONFIG": "none.toml"}, WRONG, "none.toml cannot be read"),
    ({"SHMCACHE_LISTEN": "nowhere"}, WRONG, "SHMCACHE_LISTEN must be HOST:PORT"),
    ({"SHMCACHE_NAMESPACES": "A"}, WRONG, "'A' is not a namespace name"),
    ({"SHMCACHE_SERVER": "x"}, WRONG, "'x' is not the URL of an API server"),
    ({"KUBECONFIG": "none"}, WRONG, "kubeconfig none: the file does not exist"),
]


@pytest.mark.parametrize(("environment", "status", "text"), ENVIRONMENTS)
def test_a_mistake_in_the_environment_names_the_variable(
    world: World, environment: dict[str, str], status: int, text: str
) -> None:
    ended = shm(world, ["run", "pods"], **environment)

    assert (status, "") == (ended.status, ended.out), ended
    assert text in ended.err
    check_sentences(ended.err)
    assert 1 == len(sentences(ended.err)), ended.err


def test_a_variable_that_looks_like_a_setting_is_reported_once(world: World) -> None:
    words = ["run", "pods", "--validate", "--server", world.url]
    ended = shm(world, words, SHMCACHE_NAMESPACE="a")

    assert OK == ended.status
    assert 1 == ended.err.count("SHMCACHE_NAMESPACE is not a setting; did you mean SHMCACHE_NAM")


def test_validate_reports_names_and_rights_of_a_correct_file(world: World) -> None:
    ended = shm(world, words_of(world, "run po deploy nodes -n a --validate --server {url}"))

    assert (OK, "") == (ended.status, ended.err)
    assert "po; in a: v1 Pod, namespaced" in ended.out
    assert "deploy; in a: apps/v1 Deployment, namespaced" in ended.out
    assert "nodes; in a: v1 Node, cluster-wide" in ended.out


def test_unwritable_output_is_an_error(world: World) -> None:
    with Path("/dev/full").open("w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shmcache", "get", "pods", "-A", "--cache", world.cache],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert FAILED == done.returncode
    assert "shmcache get: the output cannot be written: No space left on device\n" in done.stderr
    check_sentences(done.stderr)


def test_metrics_of_a_cache_whose_writer_was_killed_fail(name: str) -> None:
    """A script may wait for a cache with `until shmcache metrics; do sleep 1; done`."""
    code = (
        "import os, shmcache, sys\n"
        "pods = shmcache.Resource('pods', {'node': 'spec.nodeName', 'a b': 'x.y'})\n"
        "writer = shmcache.Writer(sys.argv[1], resources=[pods])\nos._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, name], cwd=ROOT, check=True)
    try:
        command = [sys.executable, "-m", "shmcache", "metrics", "--cache", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        Place(name).unlink()

    assert LATER == done.returncode
    assert f'shmcache_up{{cache="{name}"}} 0' in done.stdout
    start = f"shmcache run pods --cache {name} --index pods:node=spec.nodeName"
    assert f"its writer has ended; start it with `{start} --index 'pods:a b=x.y'`" in done.stderr
    check_sentences(done.stderr)


CALLS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": "none-such"}, shmcache.SegmentNotFound, "`shmcache run pods --cache none-such`"),
    ({"name": "none-such", "timeout": 0.1}, shmcache.SegmentNotFound, "`shmcache run pods --cac"),
    ({"name": "/no/such/place"}, shmcache.SegmentNotFound, "no cache in the directory /no/such"),
    ({"name": ""}, ValueError, "'' is not the name of a cache"),
    ({"name": "my cache"}, ValueError, "'my cache' is not the name of a cache"),
    ({"name": "x" * 101}, ValueError, "is not the name of a cache: names have 1 to 100 letters"),
    ({"name": 5}, TypeError, "the name of a cache must be a str, not 5"),
    ({}, ValueError, "attach() needs the name of a cache, or SHMCACHE_NAME to be set"),
    ({"name": "a", "timeout": "x"}, TypeError, "timeout=) must be a number of seconds or None"),
    ({"name": "a", "timeout": float("nan")}, ValueError, "attach(timeout=) must be at most"),
    ({"name": "a", "timeout": float("inf")}, ValueError, "attach(timeout=) must be at most"),
    ({"name": "a", "trusted_uids": 5}, TypeError, "must be a list of numeric uids, not 5"),
    ({"name": "a", "trusted_uids": ["root"]}, TypeError, "must be a list of numeric uids"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), CALLS)
def test_attach_explains_a_wrong_argument(
    arguments: dict[str, Any],
    kind: type[Exception],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHMCACHE_NAME", raising=False)

    with pytest.raises(kind) as error:
        shmcache.attach(**arguments)

    assert text in str(error.value)
    assert not STILTED.search(str(error.value))


def test_a_server_without_its_cache_reports_that_it_waits(world: World) -> None:
    words = words_of(world, "serve --cache {cache}s --listen 127.0.0.1:0 -p 3")
    command = [sys.executable, "-m", "shmcache", *words]
    with Command(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        found = next(line for line in lines if "waiting" in line)
        process.terminate()
        assert "waiting" not in "".join(lines)
        process.wait(PATIENCE)

    assert f"start it with `shmcache run pods --cache {world.cache}s`\n" in found


def test_the_command_in_an_error_text_works(world: World, name: str) -> None:
    """The advice for a missing cache, copied to a shell, starts that cache."""
    advice = shm(world, ["get", "pods", "--cache", name]).err
    found = re.search(r"`shmcache (run [^`]*)`", advice)
    assert found is not None
    command = [sys.executable, "-m", "shmcache", *found[1].split(), "--server", world.url]
    with Command([*command, "--no-keep"], cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        with shmcache.attach(name, timeout=PATIENCE) as cache:
            assert cache["pods"].wait_synced(PATIENCE)
        process.terminate()
        assert 0 == process.wait(PATIENCE)
