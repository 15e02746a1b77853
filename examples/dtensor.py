"""Pooling of DTensors: a batch and its channels spread over four processes, pooled where they are.

    torchrun --nproc-per-node=4 examples/dtensor.py

Run by Python alone, it starts torchrun itself. Every process pools the part that it holds, forwards and backwards; nothing
is sent, and the parts are those of the unsharded result to the bit.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import poolgrad.torch as pt
from poolgrad import PoolGradError


def main() -> None:
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("batch", "channels"))
    placements = [Shard(0), Shard(1)]
    model = torch.nn.Sequential(pt.AvgPool2d(3, stride=2, padding="same", count_include_pad=False), torch.nn.ReLU())

    whole = torch.randn(6, 5, 33, 47, generator=torch.Generator().manual_seed(0), requires_grad=True)
    model(whole).square().sum().backward()

    x = distribute_tensor(whole.detach(), mesh, placements).requires_grad_()
    with CommDebugMode() as traffic:
        y = model(x)
        y.square().to_local().sum().backward()

    grad = x.grad.full_tensor()
    if dist.get_rank() == 0:
        print("output:", tuple(y.shape), "placed", y.placements, "; here:", tuple(y.to_local().shape))
        print("messages sent while pooling:", traffic.get_total_counts())
        print("the gradient is that of the unsharded tensor, to the bit:", torch.equal(grad, whole.grad))
    dist.barrier()

    try:
        pt.avg_pool2d(distribute_tensor(whole.detach(), mesh, [Shard(0), Shard(3)]), 3)
    except PoolGradError as refusal:
        if dist.get_rank() == 0:
            print("sharded along an image's width:", refusal)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=4"]
        loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        environment = {**os.environ, **loopback, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*torchrun, __file__], check=True, stdout=subprocess.PIPE, text=True, env=environment)
        print(done.stdout, end="")
