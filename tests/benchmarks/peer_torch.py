"""The other side of tests.benchmarks.uda_step, for a Python with PyTorch 2: the same UDA step of a Wide ResNet.

For each line on its standard input it makes one step on random images, channels last, and prints the seconds of the
processor that took, all threads together, and the seconds that passed.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional

TEMPERATURE, THRESHOLD, DECAY, WEIGHT_DECAY, RATE = 0.4, 0.8, 0.9999, 5e-4, 0.03
MEAN, STD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)


class Block(nn.Module):
    def __init__(self, num_in, num_out, stride):
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(num_in), nn.BatchNorm2d(num_out)])
        self.conv1 = nn.Conv2d(num_in, num_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(num_out, num_out, 3, 1, 1, bias=False)
        changes = num_in != num_out or stride != 1
        self.projection = nn.Conv2d(num_in, num_out, 1, stride, bias=False) if changes else nn.Identity()

    def forward(self, inputs):
        hidden = self.conv1(functional.relu(self.norms[0](inputs), inplace=True))
        return self.projection(inputs) + self.conv2(functional.relu(self.norms[1](hidden), inplace=True))


def create_network(depth, size, stem_stride):
    """WRN-depth-(size / 16), pre-activation, with the original release's parameters."""
    layers, num_in = [nn.Conv2d(3, 16, 3, stem_stride, 1, bias=False)], 16
    for group in range(3):
        for block in range((depth - 4) // 6):
            layers.append(Block(num_in, size * 2**group, 2 if group and not block else 1))
            num_in = size * 2**group
    layers += [nn.BatchNorm2d(num_in), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(num_in, 10)).to(memory_format=torch.channels_last)


class Step:
    def __init__(self, batch_size, ratio, depth, size, stem_stride):
        torch.manual_seed(0)
        self.network = create_network(depth, size, stem_stride)
        self.averages = [value.detach().clone() for value in self.values()]
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY
        )
        self.sizes = [batch_size, batch_size * ratio, batch_size * ratio]
        self.images = torch.randint(0, 256, [sum(self.sizes), 3, 32, 32], dtype=torch.uint8)
        self.images = self.images.to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 10, [batch_size])
        self.mean, self.std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))

    def values(self):
        """Weights and statistics of batch norm: what the moving average covers."""
        state = self.network.state_dict().values()
        return [value for value in state if value.is_floating_point()]

    def __call__(self):
        images = (self.images.float() / 255 - self.mean) / self.std
        sup, original, augmented = self.network(images).split(self.sizes)
        loss = functional.cross_entropy(sup, self.labels) + self.consistency(original.detach(), augmented)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        torch._foreach_lerp_(self.averages, self.values(), 1 - DECAY)

    def consistency(self, original, augmented):
        mask = (original.softmax(-1).amax(-1) > THRESHOLD).float()
        target = (original / TEMPERATURE).log_softmax(-1)
        divergence = functional.kl_div(augmented.log_softmax(-1), target, reduction="none", log_target=True).sum(-1)
        return (mask * divergence).mean()


def main():
    num_threads, *sizes = map(int, sys.argv[1:])
    torch.set_num_threads(num_threads)
    step = Step(*sizes)
    for _ in sys.stdin:
        processor, passed = time.process_time(), time.perf_counter()
        step()
        print(time.process_time() - processor, time.perf_counter() - passed, flush=True)


if __name__ == "__main__":
    main()
