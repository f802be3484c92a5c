"""Which mounts cannot have a write-ahead log, read from the text of /proc/self/mountinfo."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from herma.store.files import file_system, is_unsuited

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw
40 22 0:40 / /mnt/team rw,relatime shared:9 master:1 - nfs4 server:/export rw,vers=4.2
41 40 0:41 / /mnt/team/local rw - xfs /dev/vdb rw
42 22 0:42 / /mnt/with\040space\134back rw - fuse.sshfs user@host:/ rw
43 22 0:43 / /mnt/over rw - ext4 /dev/vdc rw
44 22 0:44 / /mnt/over rw - virtiofs host rw
45 22 0:45 / /mnt/c rw,noatime - 9p drvfs rw,aname=drvfs
a line that makes no sense
46 22 0:46 / /mnt/bare -
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/someone/herma.db", "ext4"),
        ("/dev/shm/herma.db", "tmpfs"),
        ("/mnt/team/home/herma.db", "nfs4"),
        ("/mnt/team/local/herma.db", "xfs"),
        ("/mnt/teams/herma.db", "ext4"),
        ("/mnt/with space\\back/herma.db", "fuse.sshfs"),
        ("/mnt/over/herma.db", "virtiofs"),
        ("/mnt/c/Users/herma.db", "9p"),
        ("/mnt/bare/herma.db", "ext4"),
    ],
)
def test_the_nearest_mount_counts(path: str, kind: str) -> None:
    assert file_system(MOUNTS, PurePosixPath(path)) == kind


def test_network_and_host_shares_are_recognised() -> None:
    assert file_system("", PurePosixPath("/x")) == ""
    shares = "nfs nfs4 cifs smb3 9p virtiofs fuse.sshfs vboxsf prl_fs drvfs lustre ceph fuse.rclone fakeowner afs"
    local = "ext4 ext3 xfs btrfs zfs tmpfs overlay f2fs apfs ntfs3 fuseblk exfat vfat bcachefs squashfs nfsd smb"
    assert [name for name in shares.split() if not is_unsuited(name)] == []
    assert [name for name in ("", *local.split()) if is_unsuited(name)] == []
