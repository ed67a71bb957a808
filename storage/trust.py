"""Whether the content of a file may be executed: only if all users who can write it could run code as this user."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from .files import opened

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(OSError):
    """A file or folder that others may change; says which, and why."""


def check_folder(folder: Path, owners: Collection[int]) -> Path:
    """Return the real path of a folder if only the given users can change its contents.

    The folder and all its parents belong to one of these users, and only the owner may write to them. A parent may also
    be a sticky folder such as ``/tmp``, where users cannot remove each other's files. Missing folders are no danger.

    Raises
    ------
    UntrustedError
    """
    place = Path(os.path.realpath(folder))
    for path in (*reversed(place.parents), place):
        try:
            status = os.lstat(path)
        except OSError:  # the folder is missing or not accessible
            break
        if path == place or not status.st_mode & stat.S_ISVTX:
            _check_mode(path, status)
        _check_owner(path, status, owners)
    return place


def check_entry(path: Path, owners: Collection[int]) -> None:
    """Refuse what is in a folder that :func:`check_folder` returned if others than some users can change it.

    Raises
    ------
    UntrustedError
    """
    try:
        status = os.lstat(path)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise UntrustedError(f"{path} is a symbolic link")
    _check_owner(path, status, owners)
    _check_mode(path, status)


def read_trusted(path: Path, owners: Collection[int]) -> bytes:
    """Read a file of a folder that :func:`check_folder` returned, if only the given users can have written it.

    Raises
    ------
    UntrustedError
    OSError
        If it cannot be read.
    """
    with opened(path) as file:
        status = os.fstat(file.fileno())
        _check_owner(path, status, owners)
        _check_mode(path, status)
        return file.readall()


def _check_owner(path: Path, status: os.stat_result, owners: Collection[int]) -> None:
    if status.st_uid not in owners:
        raise UntrustedError(f"{path} belongs to {_user_name(status.st_uid)}")


def _check_mode(path: Path, status: os.stat_result) -> None:
    writers = status.st_mode & _OTHERS
    if writers & stat.S_IWOTH or (writers and not _is_private(status)):
        who = "everybody" if writers & stat.S_IWOTH else f"the group {_group_name(status.st_gid)}"
        raise UntrustedError(f"{who} may write to {path}")


def _is_private(status: os.stat_result) -> bool:
    """Whether a group is its owner's alone: many systems give each user one, of the same name and number."""
    import grp

    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    name = _user_name(status.st_uid)
    return group.gr_name == name and {*group.gr_mem} <= {name} and status.st_gid == status.st_uid


def _user_name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    import grp

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
