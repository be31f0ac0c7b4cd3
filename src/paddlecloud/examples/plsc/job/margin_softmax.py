"""The last layer of a large-scale classifier: an additive angular margin softmax (ArcFace).

With millions of classes the weights of this layer no longer fit into one card. Sharded, each of
the trainers keeps the weights of its own range of classes only: the features of all trainers are
gathered, every trainer scores them against its classes, and three sums and a maximum over the
trainers make one softmax of all of them. The numbers are those of one big layer.
"""
import numpy as np
import paddle
import paddle.distributed as dist
from paddle.autograd import PyLayer
from paddle.nn import functional as F


class MarginSoftmax(paddle.nn.Layer):
    """`rank` of `world` says which classes live here; 0 of 1 is a layer that is not sharded."""

    def __init__(self, width, classes, rank=0, world=1, margin=0.3, scale=24.0, seed=1):
        super().__init__()
        self.rank, self.world, self.margin, self.scale = rank, world, margin, scale
        self.first = classes * rank // world
        last = classes * (rank + 1) // world
        # Every trainer draws the same numbers and keeps its columns: a shard of one big layer.
        whole = np.random.default_rng(seed).normal(scale=0.05, size=(width, classes))
        self.weight = self.create_parameter(
            [width, last - self.first],
            default_initializer=paddle.nn.initializer.Assign(
                whole[:, self.first : last].astype("float32")
            ),
        )

    def forward(self, features, labels):
        """The mean loss over all trainers' samples, and the share of them that were told right."""
        return _Loss.apply(
            F.normalize(features, axis=1), F.normalize(self.weight, axis=0), labels, self
        )


class _Loss(PyLayer):
    """Gradients are written out by hand: a collective operation has none of its own."""

    @staticmethod
    def forward(ctx, features, weight, labels, layer):
        own = features.shape[0]
        everyone = gather(features, layer.world)
        labels = gather(labels, layer.world)
        count = everyone.shape[0]

        cosine = paddle.clip(paddle.matmul(everyone, weight), -1 + 1e-6, 1 - 1e-6)
        here = one_hot(labels - layer.first, cosine.shape[1])
        angle = paddle.acos(cosine)
        # Beyond 180 degrees the margin would turn the order round: no margin there.
        widened = paddle.cast(angle + layer.margin < np.pi, "float32") * here
        logits = layer.scale * paddle.cos(angle + layer.margin * widened)
        slope = layer.scale * paddle.sin(angle + layer.margin * widened) / paddle.sin(angle)

        top = together(logits.max(axis=1, keepdim=True), dist.ReduceOp.MAX, layer.world)
        raised = paddle.exp(logits - top)
        total = together(raised.sum(axis=1, keepdim=True), dist.ReduceOp.SUM, layer.world)
        of_label = together(
            (logits * here).sum(axis=1, keepdim=True), dist.ReduceOp.SUM, layer.world
        )
        loss = (paddle.log(total) + top - of_label).mean()

        error = (raised / total - here) * slope / count
        towards = together(
            paddle.matmul(error, weight, transpose_y=True), dist.ReduceOp.SUM, layer.world
        )
        begin = layer.rank * own
        ctx.gradients = (
            towards[begin : begin + own],
            paddle.matmul(everyone, error, transpose_x=True),
        )
        return loss, told_right(cosine, here, layer.world)

    @staticmethod
    def backward(ctx, of_loss, of_right):
        towards_features, towards_weight = ctx.gradients
        return towards_features * of_loss, towards_weight * of_loss


def told_right(cosine, here, world):
    """The share of samples whose own class, without the margin, is the nearest of all."""
    best = together(cosine.max(axis=1), dist.ReduceOp.MAX, world)
    own = together((cosine * here).sum(axis=1), dist.ReduceOp.SUM, world)
    return paddle.cast(own >= best, "float32").mean()


def one_hot(labels, width):
    """A row of zeros for a label of another shard."""
    return paddle.cast(labels.unsqueeze(1) == paddle.arange(width).unsqueeze(0), "float32")


def gather(value, world):
    """The values of all trainers in the order of their ranks."""
    if world == 1:
        return value
    parts = []
    dist.all_gather(parts, value)
    return paddle.concat(parts)


def together(value, operation, world):
    """One value out of those of all trainers."""
    if world > 1:
        dist.all_reduce(value, op=operation)
    return value
