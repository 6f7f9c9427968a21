"""Facts of hardware, read from a tree like that of /sys."""

from __future__ import annotations

from pathlib import Path

from proveout.agent.host_facts import hardware

FILES = {
    "devices/system/cpu/cpu0/topology/physical_package_id": "0",
    "devices/system/cpu/cpu1/topology/physical_package_id": "1",
    "devices/system/cpu/cpu2/topology/physical_package_id": "1",
    "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3700000\n",
    "devices/system/cpu/cpu0/cache/index0/level": "1",
    "devices/system/cpu/cpu0/cache/index0/type": "Data",
    "devices/system/cpu/cpu0/cache/index0/size": "32K",
    "devices/system/cpu/cpu0/cache/index3/level": "3",
    "devices/system/cpu/cpu0/cache/index3/type": "Unified",
    "devices/system/cpu/cpu0/cache/index3/size": "36608K",
    "class/net/eth0/device/vendor": "0x15b3",
    "class/net/eth0/mtu": "9000\n",
    "class/net/eth0/speed": "25000\n",
    "class/net/down0/device/vendor": "0x15b3",
    "class/net/down0/mtu": "1500",
    "class/net/down0/speed": "-1",
    "class/net/bond0/mtu": "9000",
    "class/net/bond0/bonding/mode": "802.3ad 4",
    "class/net/bond0/bonding/slaves": "eth0 eth1",
    "class/net/veth7/mtu": "1500",
    "class/fc_host/host3/symbolic_name": "LPe32002",
    "class/fc_host/host3/speed": "32 Gbit",
    "block/sda/device/vendor": "DELL    ",
    "block/sda/device/model": "PERC H740P",
    "block/sda/size": "2048",
    "block/loop0/size": "8",
    "class/dmi/id/sys_vendor": "Dell Inc.",
    "class/dmi/id/product_name": "PowerEdge R740\n",
    "class/dmi/id/bios_version": "2.9.4",
}


def test_each_fact_that_is_there(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert dict(hardware(tmp_path)) == {
        "cpu_sockets": 2,
        "cpu_max_khz": "3700000",
        "cpu_cache.l1d": "32K",
        "cpu_cache.l3": "36608K",
        "net.bond0.mtu": 9000,
        "net.bond0.bond": "802.3ad 4: eth0 eth1",
        "net.down0.mtu": 1500,
        "net.eth0.mtu": 9000,
        "net.eth0.speed_mbits": 25000,
        "hba.host3": "LPe32002 32 Gbit",
        "disk.sda": "DELL PERC H740P, 1048576 bytes",
        "machine": "Dell Inc. PowerEdge R740",
        "bios": "2.9.4",
    }


def test_a_host_without_these_files_has_no_facts(tmp_path: Path) -> None:
    assert list(hardware(tmp_path)) == []
