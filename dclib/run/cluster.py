"""Dask's workers: processes of this machine, or whatever serves an existing scheduler; `workers` gives them work.

Dask is loaded in these two modules alone, and only when it is asked for.
"""

import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..errors import ClusterError, SpecError, first_line
from ..support.provenance import versions

if TYPE_CHECKING:
    from distributed import Client

ANSWER_SECONDS = 10
KILLS = 5  # a run that has lost more workers than this is given up
ADDRESS = r"((tcp|tls)://)?([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def check_request(cluster: str | None, workers: int | None) -> None:
    """Refuse what cannot be meant, without loading Dask.

    Raises:
        SpecError: both are given, one makes no sense, or Dask is not installed.
    """
    if cluster is None and workers is None:
        return
    if cluster is not None and workers is not None:
        raise SpecError(f"cluster {cluster} has workers of its own: give either cluster or workers, not both")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise SpecError(f"workers must be a whole number of at least 1, not {workers!r}")
    if cluster is not None and not (re.fullmatch(ADDRESS, cluster) and 0 < int(cluster.rpartition(":")[2]) < 65536):
        raise SpecError(f"{cluster!r} is no scheduler's address: write it as tcp://host:8786")
    if find_spec("distributed") is None:
        raise SpecError("cluster and workers need Dask, which is not installed: pip install 'dclib[cluster]'")


@contextmanager
def connected(cluster: str | None, workers: int | None) -> Iterator["Client"]:
    """Give a client of the scheduler at that address, or of so many new processes, which end with the context.

    Raises:
        ClusterError: nobody answers, or a worker runs other versions.
    """
    with _quiet():
        if workers is not None:
            with tempfile.TemporaryDirectory(prefix="dclib-") as folder, _local(workers, folder) as found, _client(found) as client:
                yield client
        else:
            with _client(cluster) as client:
                _check_workers(client, cluster)
                yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's own words, and what it sets for its children, from the user: what matters comes as one sentence."""
    import dask
    from distributed.versions import VersionMismatchWarning

    disabled, environment = logging.root.manager.disable, dict(os.environ)
    settings = {"distributed.scheduler.allowed-failures": KILLS, "distributed.admin.large-graph-warning-threshold": "1TiB"}
    settings |= {"distributed.scheduler.worker-saturation": 1.0, "distributed.comm.timeouts.connect": f"{ANSWER_SECONDS}s"}
    logging.disable(logging.CRITICAL)
    try:
        with dask.config.set(settings), warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            yield
    finally:
        logging.disable(disabled)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


@contextmanager
def _local(workers: int, folder: str) -> Iterator[Any]:
    """Start processes that do one job at a time, each with its share of this process's threads."""
    import torch
    from distributed import LocalCluster

    os.environ.update({name: str(max(1, torch.get_num_threads() // workers)) for name in THREADS})  # children inherit it
    os.environ["MALLOC_ARENA_MAX"] = "1"  # before their threads take memory: see `engine.tune_allocator`
    options = dict(n_workers=workers, threads_per_worker=1, memory_limit=0, local_directory=folder, preload=[__name__])
    options |= dict(dashboard_address="127.0.0.1:0", scheduler_kwargs=dict(dashboard=False))  # not 8787: it may be taken
    try:
        cluster = LocalCluster(silence_logs=logging.CRITICAL, **options)
    except Exception as error:
        raise ClusterError(f"cannot start {workers} worker processes ({first_line(error)}): try fewer") from error
    with cluster:
        yield cluster


@contextmanager
def _client(where: Any) -> Iterator["Client"]:
    from distributed import Client

    client = Client.__new__(Client)  # one that cannot connect is closed at once: collected as garbage later, it can lock Dask
    try:
        client.__init__(where, timeout=ANSWER_SECONDS, set_as_default=False)
    except Exception as error:  # also when something else answers
        with suppress(Exception):
            client.close()
        sentence = f"no Dask scheduler answers at {where}: start one with `dask scheduler`, or correct the address"
        raise ClusterError(sentence) from error
    try:
        yield client
    finally:
        client.close()


def dask_setup(worker: Any) -> None:
    """Keep a new worker of this machine quiet and out of Ctrl-C's reach: it is told to stop, and does so after its step."""
    os.setsid()
    if not os.environ.get("DCLIB_DEBUG"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _check_workers(client: "Client", address: str) -> None:
    """Compare versions before anything is sent that another version could misread; workers that come later do so by themselves."""
    found = client.get_versions(packages=["dclib", "torch"])["workers"]
    for worker, about in found.items():
        theirs = {name: about["packages"].get(name) for name in ("python", "torch", "dclib")}
        if error := mismatch(worker, theirs, versions()):
            raise error
    if not found:
        start = f"dask worker {address} --nthreads 1"
        warnings.warn(f"the scheduler at {address} has no workers yet: start some with `{start}`", stacklevel=2)


def mismatch(worker: str, theirs: dict[str, str | None], ours: dict[str, str]) -> ClusterError | None:
    """Return the error that names both versions where a worker's differ; patches of Python and builds of torch do not count."""
    for name, version in ours.items():
        there, here = (_release(name, v) for v in (theirs.get(name), version))
        if there != here:
            has = f"{name} {there}" if there else f"no {name}"
            return ClusterError(f"the worker {worker} has {has} and this process {name} {here}: install the same on both")
    return None


def _release(name: str, version: str | None) -> str:
    version = (version or "").partition("+")[0]
    return ".".join(version.split(".")[:2]) if name == "python" else version
