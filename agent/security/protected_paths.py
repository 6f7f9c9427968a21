"""Units and paths of a host that no policy can allow a plan to change, and programs that it cannot list."""

from __future__ import annotations

import re

UNITS_OF_THE_HOST = (
    "NetworkManager*",
    "[a-z]*.slice",
    "basic.target",
    "ctrl-alt-del.target",
    "dbus*",
    "default.target",
    "emergency.*",
    "exit.*",
    "final.target",
    "graphical.target",
    "halt.*",
    "hibernate.*",
    "hybrid-sleep.*",
    "init.*",
    "kexec.*",
    "local-fs.target",
    "multi-user.target",
    "network*",
    "poweroff.*",
    "proveout-agent*",
    "reboot.*",
    "rescue.*",
    "runlevel[0-9].target",
    "shutdown.*",
    "soft-reboot.*",
    "ssh.*",
    "ssh@*",
    "sshd*",
    "suspend-then-hibernate.*",
    "suspend.*",
    "sysinit.target",
    "systemd-*",
    "umount.target",
    "user@*",
)
"""Units whose start or stop blocks logins or shuts the host down, and the agent's own. Source: systemd.special(7)."""

OWN_FOLDERS = ("/etc/proveout", "/opt/proveout", "/var/lib/proveout")
"""The agent's certificates, its policy, the program that `proveout deploy` installs, and its journal."""

ROOT_EQUIVALENT_PATHS = (
    "/bin",
    "/boot",
    "/etc/NetworkManager",
    "/etc/X11",
    "/etc/alternatives",
    "/etc/anacrontab",
    "/etc/apparmor.d",
    "/etc/apt",
    "/etc/bash.bashrc",
    "/etc/bash_completion.d",
    "/etc/bashrc",
    "/etc/binfmt.d",
    "/etc/containerd",
    "/etc/containers",
    "/etc/cron.d",
    "/etc/cron.daily",
    "/etc/cron.hourly",
    "/etc/cron.monthly",
    "/etc/cron.weekly",
    "/etc/crontab",
    "/etc/csh.cshrc",
    "/etc/csh.login",
    "/etc/dbus-1",
    "/etc/default",
    "/etc/dhcp",
    "/etc/dnf",
    "/etc/doas.conf",
    "/etc/docker",
    "/etc/dpkg",
    "/etc/dracut.conf.d",
    "/etc/environment",
    "/etc/fish",
    "/etc/group",
    "/etc/grub.d",
    "/etc/gshadow",
    "/etc/init.d",
    "/etc/initramfs-tools",
    "/etc/inittab",
    "/etc/kernel",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/libvirt",
    "/etc/logrotate.conf",
    "/etc/logrotate.d",
    "/etc/lvm",
    "/etc/modprobe.d",
    "/etc/modules",
    "/etc/modules-load.d",
    "/etc/network",
    "/etc/nsswitch.conf",
    "/etc/pam.conf",
    "/etc/pam.d",
    "/etc/passwd",
    "/etc/perl",
    "/etc/pki",
    "/etc/polkit-1",
    "/etc/ppp",
    "/etc/profile",
    "/etc/profile.d",
    "/etc/python3",
    "/etc/rc.d",
    "/etc/rc.local",
    "/etc/rc0.d",
    "/etc/rc1.d",
    "/etc/rc2.d",
    "/etc/rc3.d",
    "/etc/rc4.d",
    "/etc/rc5.d",
    "/etc/rc6.d",
    "/etc/rcS.d",
    "/etc/rpm",
    "/etc/rsyslog.d",
    "/etc/security/namespace.d",
    "/etc/security/namespace.init",
    "/etc/security/pam_env.conf",
    "/etc/selinux",
    "/etc/shadow",
    "/etc/skel",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/subgid",
    "/etc/subuid",
    "/etc/sudo.conf",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/sysconfig",
    "/etc/systemd",
    "/etc/tmpfiles.d",
    "/etc/udev/hwdb.d",
    "/etc/update-motd.d",
    "/etc/xinetd.conf",
    "/etc/xinetd.d",
    "/etc/yum",
    "/etc/yum.repos.d",
    "/etc/zprofile",
    "/etc/zsh",
    "/etc/zshenv",
    "/etc/zshrc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/root",
    "/run/binfmt.d",
    "/run/modprobe.d",
    "/run/sysctl.d",
    "/run/systemd",
    "/run/tmpfiles.d",
    "/run/udev",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libx32",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/sbin",
    "/usr/local/share/dbus-1",
    "/usr/sbin",
    "/usr/share/bash-completion",
    "/usr/share/dbus-1",
    "/usr/share/perl5",
    "/usr/share/polkit-1",
    "/var/lib/apt",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/lib/systemd",
    "/var/spool/anacron",
    "/var/spool/at",
    "/var/spool/cron",
)
"""Files that root runs or trusts: a process that can write one of them, or a file below, can become root.

Always denied.
"""

PATHS_OF_THE_HOST = (*OWN_FOLDERS, *ROOT_EQUIVALENT_PATHS, "/dev", "/home", "/proc", "/sys")
"""Paths that no listed folder may contain: `/etc` is refused, `/etc/udev/rules.d` is not."""

_NAMES = """
adrci alacritty ant ash asmcmd at atd autossh awk bash batch bazel bpftrace bun bundle busybox bwrap capsh cargo
catatonit catchsegv cgexec chpst chronic chroot chrt clojure cmake composer cpan cpio cpulimit cron crond crontab
crun csh ctest ctr daemon daemonize dash dbus-launch dbus-run-session deb-systemd-invoke deno dgmgrl direnv
distrobox doas docker dotnet dtach dtrace duckdb dumb-init eatmydata ed elixir elvish emacs emacsclient entr env
envdir envuidgid erl es escript ex expect fakechroot fakeroot faketime find firejail fish flatpak flock foot
fstab-decode ftp gapplication gawk gdb gdbserver gdbus gem ghci git gmake gnome-terminal gnuplot go gosu gprofng
gradle groovy gtk-launch guile gvim heaptrack helm hg hyperfine i386 iex ifne incrond ionice ip irb ischroot isql
java jdb jed joe jruby jrunscript jshell julia kitty konsole kotlin ksh kubectl latrace lckdo less lftp linux32
linux64 lksh lldb lli logsave ltrace lua luajit lxc lxterminal m4 machinectl make man mariadb mawk mcedit memusage
micro minijail0 mispipe mksh mlterm mongo mongosh mono more most mpiexec mpirun mtrace mvn mysql mysqlsh nano nawk
nc ncat nerdctl netcat newgrp nice ninja node nodejs nohup npm npx nsenter nu numactl nvim ocaml ocount octave
octave-cli oksh operf original-awk orterun pager parallel pdksh pdsh pee perf perl pgcli pgrphack php php-cgi phpdbg
pico pilot pip pipx pkexec pnpm podman poetry posh prlimit proot prove proxychains psql pwsh pypy python R racket
rake rbash rc reptyr rksh rlogin rlwrap rman rr Rscript rsh rsync ruby run-mailcap run-one run-parts run0 runc
runcon runghc runhaskell runit runsv runsvdir runuser rview rvim rxvt rzsh samply sbcl scala schedtool schroot scons
scp scponly screen script scriptlive scsh sed sensible-browser sensible-editor sensible-pager setarch setlock
setpriv setsid setuidgid sftp sg sh snap socat softlimit sotruss sqlcl sqlite sqlplus srun ssh ssh-agent ssh-argv0
ssh-keygen sshpass st stap start-stop-daemon startx stdbuf strace su su-exec sudo sudoedit supervise supervisorctl
supervisord svn svscan swipl switch_root sysdig systemd-cat systemd-inhibit systemd-nspawn systemd-run
systemd-socket-activate tar taskset tclsh tcpserver tcpsvd tcsh telnet terminator tilix time timelimit timeout tini
tmate tmux toolbox torify torsocks tox toybox trace-cmd tsocks ttIsql uclampset uftrace uname26 unbuffer unshare
urxvt usql uv uvx uxterm valgrind vgdb vi view vigr vim vimdiff vipw virsh visudo vtune watch watchexec wezterm wine
wish x-terminal-emulator x86_64 xargs xdg-open xfce4-terminal xinit xonsh xterm xvfb-run yarn yash zsh
"""
RUNNERS = frozenset(_NAMES.split())
"""Shells, interpreters, terminals, editors, debuggers; what starts a program that an argument names, also as another
user or elsewhere; clients of databases with a command for a shell. An entry for one would allow everything. The list
is not complete, and cannot be.
"""
_FAMILIES = re.compile(r"ld(-.*)?\.so(\.[0-9]+)?|ld-(linux|musl).*|(lxc|mpirun|s6|qemu(?!-(img|io|nbd)))[.-].*")
_VARIANT = re.compile(r"^original-|[.-](basic|bin|dbg|gtk3?|nox|static|tiny)$|[-_]?[0-9][0-9.]*$")


def is_runner(name: str) -> bool:
    """Whether a program of that name runs any program that it is given; `perl5.36` and `vim.tiny` are variants."""
    return name in RUNNERS or _VARIANT.sub("", name) in RUNNERS or _FAMILIES.fullmatch(name) is not None
