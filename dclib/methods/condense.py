"""Algorithm 1 as a method among others: `core.condense` under a progress bar."""

from ..core import condense as algorithm
from ..data.dataset import Dataset
from ..spec import MakeSet
from ..support.progress import Progress
from . import Context, Made


def make(run: MakeSet, dataset: Dataset, context: Context) -> Made:
    """Condense the images of a run, which may share its trajectory with others, or its work with other processes."""
    h, ranks = run.hyper, context.ranks
    what = f"condensing {dataset.name}, {h.ipc}/class, {h.network}, seed {run.seed}"
    with Progress(what, h.outer_steps, hidden=ranks.rank > 0) as progress:
        callbacks = progress.follow(lambda state: f"loss {state.losses[-1]:.1f}", *context.looks)
        how = dict(engine=context.engine, ranks=ranks, longest=context.longest, start=context.start)
        state = algorithm.condense(dataset, h, seed=run.seed, **how, **callbacks, **context.how)
    about = {"seconds": round(state.seconds, 2), "losses": [round(x, 3) for x in state.losses], "engine": state.engine}
    return Made(state.images, about | ({"world_size": ranks.count} if ranks.count > 1 else {}))
