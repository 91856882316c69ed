"""Finding a target by name and by device, and adding one."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilejax import targets
from tilejax.errors import DeclarationError, TargetError
from tilejax.targets import registry


def _device(platform, kind):
    return SimpleNamespace(platform=platform, device_kind=kind)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("tpu:v5e", "tpu:v5e"),
        ("TPU:V5E", "tpu:v5e"),
        ("v5e", "tpu:v5e"),
        ("TPU v5 lite", "tpu:v5e"),
        ("trillium", "tpu:v6e"),
        ("tpu7x", "tpu:tpu7x"),
        ("tpu:v7x", "tpu:tpu7x"),
        ("h100", "gpu:h100"),
        ("sm_90a", "gpu:h100"),
        ("gfx942", "gpu:mi300x"),
        ("Ascend910B1", "ascend:910b1"),
        ("Ascend910_9382", "ascend:910c"),
        ("cpu", "cpu"),
    ],
)
def test_a_target_goes_by_name_model_and_alias(asked, found):
    assert targets.get(asked).name == found


def test_every_name_and_record_finds_itself():
    for name in targets.names():
        record = targets.get(name)
        assert record.name == name and targets.get(record) is record


def test_every_alias_leads_to_a_target():
    assert set(registry._ALIASES.values()) <= set(targets.names())
    assert all(alias == registry._plain(alias) for alias in registry._ALIASES)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("tpu:v5x", r"unknown target 'tpu:v5x'; did you mean 'tpu:v5[ep]'\?"),
        ("h10", r"did you mean 'gpu:h100'\? Known targets: cpu, gpu:a100"),
        ("toaster", r"unknown target 'toaster'; known targets: cpu, gpu:a100, "),
        ("", r"unknown target ''; known targets"),
        ("gpu", r"'gpu' is a family; say which: gpu:a100, gpu:h100, gpu:b200, gpu:mi"),
        (None, r"a target is a name or a Target record, not NoneType; known: cpu"),
    ],
)
def test_an_unknown_target_says_which_there_are(asked, message):
    with pytest.raises(TargetError, match=message):
        targets.get(asked)


@pytest.fixture
def scratch_registry(monkeypatch):
    monkeypatch.setattr(registry, "_RECORDS", dict(registry._RECORDS))


def test_a_registered_target_is_found_and_detected(scratch_registry):
    mine = replace(
        targets.get("gpu:h100"),
        name="gpu:h100_pcie",
        device_kinds=("NVIDIA H100 PCIe",),
    )
    assert targets.register(mine) is mine
    assert targets.get("h100-pcie") is mine and "gpu:h100_pcie" in targets.names()
    assert targets.detect(_device("gpu", "NVIDIA H100 PCIe")) is mine


@pytest.mark.parametrize("name", ["gpu:h100", "tpu:v4"])
def test_a_second_registration_is_refused(name, scratch_registry):
    with pytest.raises(DeclarationError, match=f"'{name}' is registered already"):
        targets.register(targets.get(name))


def test_the_host_cannot_be_replaced(scratch_registry):
    with pytest.raises(DeclarationError, match="'cpu' is registered already"):
        targets.register(targets.get("cpu"))


@pytest.mark.parametrize("name", ["h100", "gpu:", "GPU:x", "tpu:x"])
def test_a_malformed_name_is_refused(name, scratch_registry):
    with pytest.raises(DeclarationError, match="must be 'gpu' or 'gpu:model'"):
        targets.register(replace(targets.get("gpu:h100"), name=name))


@pytest.mark.parametrize(
    ("platform", "kind", "found"),
    [
        ("gpu", "NVIDIA A100-SXM4-80GB", "gpu:a100"),
        ("gpu", "NVIDIA H100 80GB HBM3", "gpu:h100"),
        ("gpu", "NVIDIA B200", "gpu:b200"),
        ("gpu", "AMD Instinct MI300X", "gpu:mi300x"),
        ("tpu", "TPU v4", "tpu:v4"),
        ("tpu", "TPU v5 lite", "tpu:v5e"),
        ("tpu", "TPU v5", "tpu:v5p"),
        ("tpu", "TPU v6 lite", "tpu:v6e"),
        ("tpu", "TPU7x", "tpu:tpu7x"),
        ("cpu", "cpu", "cpu"),
    ],
)
def test_a_device_is_recognised_by_its_kind(platform, kind, found):
    assert targets.detect(_device(platform, kind)).name == found


def test_no_device_kind_means_two_targets():
    kinds = [
        registry._plain(kind)
        for name in targets.names()
        for kind in targets.get(name).device_kinds
    ]
    assert len(kinds) == len(set(kinds))


def test_a_device_without_a_record_is_named():
    with pytest.raises(
        TargetError, match="the gpu device 'NVIDIA GeForce'; give target="
    ):
        targets.detect(_device("gpu", "NVIDIA GeForce"))


def test_the_first_device_is_the_one_detected():
    assert targets.detect() is targets.get("cpu")
