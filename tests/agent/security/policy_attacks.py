"""Policies of tests; policy entries and udev rules that would give control of a host, as data for `test_allow_lists`: each is
a name and an entry or rule; the attack has succeeded when it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proveout.agent.security import policy_file
from proveout.agent.security.policy import Policy


def write(folder: Path, text: str) -> Path:
    """A policy file."""
    path = folder / "policy.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def policy_of(folder: Path, lines: str) -> Policy:
    """The policy of a file with these lines."""
    return policy_file.read(write(folder, f"policy: 1\n{lines}\n"))


_FOLDERS = """
/etc/perl /etc/bash_completion.d /etc/libvirt /etc/libvirt/hooks /etc/docker /var/lib/dpkg /var/lib/dpkg/info /home
/home/lab /home/lab/.ssh /etc/postgresql /etc/postgresql/16/main/conf.d /var/lib/postgresql/16/main /etc/mysql/conf.d
/var/lib/mysql /opt/TimesTen/conf /u01/app/oracle /usr/local/share /var/www /etc/ssl/certs /data /mnt /srv /etc/udev
/etc/security /etc/multipath /sys /sys/kernel/mm /tmp/x /run/x
"""
FOLDERS = tuple(_FOLDERS.split())
"""Folders that a policy lists only with a reason: folders that deny lists had missed, configuration of servers, parents
of known ones."""

_NEVER_FOLDERS = """
/etc/bash_completion.d /etc/cron.d /etc/docker /etc/libvirt/hooks /etc/perl /etc/proveout /etc/ssh /etc/sudoers.d
/etc/systemd/system /home /home/lab/.ssh /home/lab/.config/systemd/user /opt/proveout /root/.ssh /usr/bin
/var/lib/dpkg /var/lib/dpkg/info /var/lib/proveout /var/spool/cron
"""
NEVER_FOLDERS = tuple(_NEVER_FOLDERS.split())
"""Folders that no reason allows."""

_TOOLS = """
apt-get dpkg tee openssl tcpdump gcc cp dd install mount rpm curl ln mkfs.ext4 tune2fs
"""
TOOLS = tuple(_TOOLS.split())
"""Programs, of /usr/bin and /usr/sbin, that a policy lists only with a reason."""

_RUNNERS = """
ash at atd autossh awk bash batch bpftrace bun busybox bwrap capsh cargo catchsegv cgexec chpst chronic chroot chrt
cpulimit crontab crun csh ctr daemon daemonize dash dbus-launch dbus-run-session deb-systemd-invoke deno dgmgrl doas
docker dtach dtrace dumb-init eatmydata ed emacs entr env envdir ex expect fakechroot fakeroot faketime find
firejail fish flatpak flock ftp gapplication gawk gdb gdbserver gdbus gem gmake gnome-terminal go gosu heaptrack
hyperfine i386 ifne ionice ip irb java jdb jshell julia konsole ksh93 kubectl latrace ld-linux-x86-64.so.2 ld.so
less lftp linux32 linux64 lldb logsave ltrace lua5.4 luajit lxc lxc-execute m4 machinectl make man mariadb mawk mksh
mongosh more mpirun mtrace mysql mysqlsh nano nawk nc ncat nerdctl newgrp nice ninja node nohup npm npx nsenter
numactl nvim octave-cli original-awk orterun parallel pdsh pee perf perf_5.10 perl5.36.0 php8.2 pico pip3 pkexec
podman posh prlimit proot prove proxychains4 psql pwsh pypy3 python3.11 qemu-x86_64-static rake rbash reptyr rksh
rlogin rlwrap rman rsh rsync ruby3.1 run-one run-parts runc runcon runit runsv runsvdir runuser rxvt scp screen
script scriptlive sed setarch setlock setpriv setsid setuidgid sftp sg sh snap socat softlimit sotruss sqlite3
sqlplus srun ssh ssh-agent sshpass st stap start-stop-daemon startx stdbuf strace su sudo sudoedit supervise
supervisord switch_root systemd-cat systemd-inhibit systemd-nspawn systemd-run systemd-socket-activate tar taskset
tclsh8.6 tcpserver tcsh telnet time timelimit timeout tini tmux torsocks toybox trace-cmd tsocks uclampset uftrace
uname26 unbuffer unshare uxterm valgrind valgrind.bin vgdb vi view vim.tiny visudo watch watchexec wine wish
x-terminal-emulator x86_64 xargs xdg-open xinit xonsh xterm xvfb-run yash yarn zsh5
"""
RUNNERS = tuple(_RUNNERS.split())
"""Programs that run a program, a script or a shell that an argument or their input names: no policy lists them."""

LOADERS: Mapping[str, tuple[str, ...]] = {
    "fio": (
        "exec_prerun", "exec_postrun", "trigger", "trigger-remote", "trigger-file", "output", "daemonize", "server",
        "client", "remote-config", "aux-path", "ioengine", "write_bw_log", "write_lat_log", "write_iops_log",
        "write_hist_log", "write_iolog", "read_iolog", "per_job_logs", "filename", "directory", "opendir",
        "filename_format", "verify_state_load", "log_store_compressed", "mem", "cgroup", "profile", "section",
    ),
    "pgbench": (
        "file", "log-prefix", "define", "builtin", "initialize", "init-steps", "dbname", "partitions", "tablespace",
        "index-tablespace",
    ),
    "sysbench": (
        "config-file", "mysql-password", "pgsql-password", "mysql-ssl", "mysql-ignore-errors", "db-driver",
    ),
}  # fmt: skip
"""Options of load generators that run, load, read or write something; each is in the help of the program."""

ARGUMENTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("/usr/bin/fio", ("*",), ("--exec_prerun=/bin/sh",)),
    ("/usr/bin/fio", ("--*",), ("--name=x", "--filename=/etc/shadow")),
    ("/usr/bin/fio", ("*",), ("--filename=/srv/x/../../etc/passwd",)),
    ("/usr/bin/fio", ("*",), ("--ioengine=external:/srv/x.so",)),
    ("/usr/bin/fio", ("*",), ("--output=/etc/cron.d/x",)),
    ("/usr/bin/fio", ("*",), ("/srv/job.fio",)),
    ("/usr/bin/systemctl", ("*",), ("start", "x.service")),
    ("/usr/bin/systemctl", ("*",), ("link", "/srv/x.service")),
    ("/usr/bin/udevadm", ("*",), ("control", "--property=X=1")),
    ("/usr/bin/udevadm", ("*",), ("test", "/sys/block/sda")),
    ("/usr/sbin/blkid", ("*",), ("--cache-file", "/etc/x")),
    ("/usr/sbin/wipefs", ("*",), ("--all", "/dev/sda")),
    ("/usr/sbin/parted", ("*",), ("--script", "/dev/sda", "mklabel", "gpt")),
    ("/usr/sbin/multipath", ("*",), ("-c", "/dev/sda")),
)
"""(program, globs of the policy, arguments): the globs cover more than the program is known to need."""

VALIDATORS: tuple[tuple[str, ...], ...] = (
    ("/usr/bin/dpkg", "-i", "{file}"),
    ("/usr/bin/gcc", "@{file}"),
    ("/usr/bin/openssl", "-config", "{file}"),
    ("/usr/bin/udevadm", "{file}"),
    ("/usr/sbin/nginx", "-t", "-c", "{file}"),
    ("/srv/udevadm", "verify", "{file}"),
)
"""Programs that would execute or load the contents of a file of a plan."""

_DEVICES = """
KERNEL==sd* KERNEL==sda KERNEL==nvme0n1 KERNEL==vda* KERNEL==dm-0 ENV{DM_NAME}==mpath* ENV{DM_NAME}==vg-*
ENV{ID_SERIAL}==QEMU* ATTRS{vendor}==ATA* ATTRS{vendor}==QEMU* ATTRS{vendor}==3PARdata*x ATTRS{model}==VBOX*
"""
DEVICES = tuple(_DEVICES.split())
"""Devices of udev rules that may be the system's disk: permitted only with a reason."""

_NEVER_DEVICES = """
KERNEL==mem KERNEL==kmsg KERNEL==kms* KERNEL==kvm KERNEL==kv* KERNEL==* KERNEL==[a-z]* KERNEL==por* KERNEL==vfio*
KERNEL==tty* ENV{DM_NAME}==* ENV{ID_SERIAL}==a* SUBSYSTEM==block ENV{DEVNAME}==/dev/sda ENV{ID_BUS}==scsi KERNEL!=sda
sda
"""
NEVER_DEVICES = tuple(_NEVER_DEVICES.split())
"""Devices of udev rules that no reason permits: not disks, too wide, or not a property that identifies a disk."""

LINKED = {"match": {"KERNEL": "scini*"}}
RULES: Mapping[str, Mapping[str, Any]] = {
    "the owner of the system's disk": {"match": {"KERNEL": "sda"}, "assign": {"OWNER": "lab"}},
    "the group of all disks": {"match": {"SUBSYSTEM": "block"}, "assign": {"GROUP": "lab"}},
    "the memory of the host": {"match": {"KERNEL": "mem"}, "assign": {"MODE": "0660"}},
    "the memory, by its subsystem": {"match": {"SUBSYSTEM": "mem"}, "assign": {"OWNER": "lab", "MODE": "0660"}},
    "a listed disk or the system's": {"match": {"KERNEL": "scini*|sda"}, "assign": {"OWNER": "lab"}},
    "a listed disk or any": {"match": {"ENV{DM_NAME}": "fcion1|*"}, "assign": {"OWNER": "lab"}},
    "a listed disk or none": {"match": {"KERNEL": "scini*|"}, "assign": {"OWNER": "lab"}},
    "more than is listed": {"match": {"KERNEL": "sc*"}, "assign": {"OWNER": "lab"}},
    "all but the listed disk": {
        "match": {"SUBSYSTEM": "block"},
        "unless": {"KERNEL": "scini*"},
        "assign": {"OWNER": "lab"},
    },
    "the listed pattern under another key": {"match": {"KERNELS": "scini*"}, "assign": {"OWNER": "lab"}},
    "the serial number under another key": {
        "match": {"ENV{ID_FS_LABEL}": "S4EVNX0R512345"},
        "assign": {"OWNER": "lab"},
    },
    "another partition scheme of a listed name": {"match": {"ENV{DM_NAME}": "fcion10"}, "assign": {"OWNER": "lab"}},
    "a property that makes another disk a listed one": {
        "match": {"KERNEL": "sda"},
        "assign": {"ENV{ID_SERIAL}": "36001405aaaa"},
    },
    "a link of the system's disk": {"match": {"KERNEL": "sda"}, "assign": {"SYMLINK": "oraudev/disks/DATA1"}},
    **{
        f"a link {what}": {**LINKED, "assign": {"SYMLINK": link}}
        for what, link in {
            "onto a listed name": "disk/by-id/wwn-0x6000",
            "onto a listed name, by a second one": "oraudev/a disk/by-id/wwn-0x6000",
            "onto a map": "mapper/root",
            "onto a device": "sda",
            "in a folder that is not listed": "other/a",
            "that climbs": "oraudev/../sda",
            "that climbs by an empty variable": "oraudev/.%E{none}./disk/by-id/x",
            "that climbs by an empty number": "oraudev/.%n./disk/by-id/x",
            "named by a program": "oraudev/%c",
            "named by an attribute": "oraudev/$attr{model}",
            "in a folder named by a variable": "%E{X}disk/by-id/x",
        }.items()
    },
    **{
        f"a program {what}": {**LINKED, "program": program, "assign": {"OWNER": "lab"}}
        for what, program in {
            "that climbs by %E{none}": ["/opt/drv_cfg", "--file=/srv/.%E{none}./.%E{none}./etc/shadow"],
            "that climbs by $env{none}": ["/opt/drv_cfg", "/srv/.$env{none}./etc"],
            "that climbs by %n": ["/opt/drv_cfg", "/srv/.%n./etc"],
            "that climbs by $number": ["/opt/drv_cfg", "/srv/.$number./etc"],
            "with the output of another": ["/opt/drv_cfg", "/srv/%c"],
            "with an attribute": ["/opt/drv_cfg", "/srv/%s{model}"],
            "that is substituted": ["/opt/%k", "/srv/x"],
            "by its bare name": ["drv_cfg"],
            "that is not listed": ["/usr/bin/tee", "/srv/x"],
            "with an escaped percent sign": ["/opt/drv_cfg", "/srv/%%k"],
        }.items()
    },
}
"""Rules of plans, tried on a host whose policy lists KERNEL==scini*, the disks of `LISTED` and the program /opt/drv_cfg
with /srv/*."""

LISTED = ("/dev/disk/by-id/dm-name-fcion1", "/dev/disk/by-id/scsi-36001405aaaa", "serial:S4EVNX0R512345")
