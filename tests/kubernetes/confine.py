"""Runs a program as a pod of the chart is run: a user that is not root, a read-only root, no capability, no new
privileges, and the system calls that container runtimes allow by default.

Needs root, and a mount namespace of its own.
"""

import ctypes
import ctypes.util
import os
import resource
from pathlib import Path

# linux/sched.h, linux/mount.h, linux/prctl.h, seccomp.h
CLONE_NEWNS, MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITIES = 64
ALLOW, ERRNO, ENOSYS, EPERM = 0x7FFF0000, 0x00050000, 38, 1
USER = 65532
# Locked memory, in bytes: what systemd gives services, and so what container runtimes often have.
LOCKED_BYTES = 8 << 20

# What the default profiles of container runtimes refuse to a process without capabilities. io_uring is among it in
# containerd; memory policies are in all of them.
REFUSED = """
    acct add_key bpf cachestat clock_settime create_module delete_module fanotify_init finit_module fsconfig fsmount
    fsopen fspick get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
    kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mount mount_setattr move_mount move_pages
    nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise query_module quotactl
    quotactl_fd reboot request_key set_mempolicy set_mempolicy_home_node setdomainname sethostname setns settimeofday
    swapoff swapon sysfs syslog umount umount2 unshare uselib userfaultfd ustat vhangup chroot
""".split()

# The library that knows the numbers of system calls. `None`: it is missing.
SECCOMP = ctypes.util.find_library("seccomp")
libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments) -> None:
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function.__name__}{arguments}: {os.strerror(code)}")


def mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    call(libc.mount, source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def enter(root: Path, binds: dict[str, Path]) -> None:
    """Makes `root` the root, read-only, with folders of its own to write to, and `binds` (path inside: path outside)."""
    call(libc.unshare, CLONE_NEWNS)
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)
    mount(str(root), root, flags=MS_BIND)
    inside = {path: outside.resolve() for path, outside in binds.items()}
    mount("tmpfs", root / "dev", "tmpfs", MS_NOSUID, "mode=755")
    (root / "dev/shm").mkdir()
    for device in ("null", "zero", "random", "urandom"):
        (root / "dev" / device).touch()
        mount(f"/dev/{device}", root / "dev" / device, flags=MS_BIND)
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")
    for folder in ("tmp", "var/cache/baton"):
        mount("tmpfs", root / folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    for path, outside in inside.items():
        mount(str(outside), root / path.lstrip("/"), flags=MS_BIND)
    mount("none", root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.chroot(root)
    os.chdir("/")


def refuse_calls(seccomp: ctypes.CDLL) -> None:
    seccomp.seccomp_init.restype = ctypes.c_void_p
    filter_of = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(ALLOW)))
    rules = {name: EPERM for name in REFUSED} | {"clone3": ENOSYS}
    for name, code in rules.items():
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        # A call that this library or processor does not know cannot be made by its name either.
        if number >= 0:
            call(seccomp.seccomp_rule_add, filter_of, ctypes.c_uint32(ERRNO | code), number, 0)
    call(seccomp.seccomp_load, filter_of)


def run(root: Path, binds: dict[str, Path], arguments: list[str], environment: dict[str, str]) -> None:
    """Becomes the program. Never returns."""
    # Of the system outside: inside there is none.
    seccomp = ctypes.CDLL(SECCOMP)
    enter(root, binds)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (LOCKED_BYTES, LOCKED_BYTES))
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    call(libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    refuse_calls(seccomp)
    os.execve(arguments[0], arguments, environment)
