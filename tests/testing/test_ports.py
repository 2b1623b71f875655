"""Ports for brokers that go down and come back."""

import random

from moldau.testing.ports import PORTS, free_ports


def test_ports_are_apart_and_out_of_the_kernels_way() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert set(ports) <= set(PORTS)


def test_a_seed_does_not_choose_them() -> None:
    before = random.getstate()
    first = free_ports(20)
    random.setstate(before)
    assert free_ports(20) != first
