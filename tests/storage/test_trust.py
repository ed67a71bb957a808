"""Folders and files whose content may be run: nobody else can write there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bucketflow.storage.files import UntrustedError, check_folder, read_trusted, write_whole

ME = frozenset((0, os.geteuid()))
#: Nobody's group, as no user has its number.
STRANGE = 54321


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "above" / "folder"
    found.mkdir(parents=True)
    for each in (found, found.parent):
        each.chmod(0o755)
    return found


def test_a_folder_of_ones_own_is_trusted(folder: Path) -> None:
    assert check_folder(folder, ME) == folder.resolve()
    assert check_folder(folder / "not" / "there", ME) == folder.resolve() / "not" / "there"
    (folder / "file").write_bytes(b"code")
    (folder / "file").chmod(0o644)
    assert read_trusted(folder / "file", ME) == b"code"


def test_the_folder_of_temporary_files_may_be_above(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert check_folder(folder, ME) == folder.resolve()
    folder.chmod(0o1777)
    with pytest.raises(UntrustedError, match=f"everybody may write to {folder}"):
        check_folder(folder, ME)


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_everybody_may_write_to_is_refused(above: bool, folder: Path) -> None:
    wrong = folder.parent if above else folder
    wrong.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"everybody may write to {wrong}"):
        check_folder(folder, ME)
    with pytest.raises(UntrustedError, match=f"everybody may write to {wrong}"):
        check_folder(folder / "not" / "there", ME)


def test_a_folder_of_somebody_else_is_refused(folder: Path) -> None:
    with pytest.raises(UntrustedError, match="belongs to"):
        check_folder(folder, frozenset({STRANGE}))


def test_a_link_leads_to_a_folder_that_is_looked_at(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    assert check_folder(link / "below", ME) == folder.resolve() / "below"
    folder.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"everybody may write to {folder}"):
        check_folder(link / "below", ME)


def test_a_group_may_write_if_it_is_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    user, number = pwd.getpwuid(os.geteuid()).pw_name, os.geteuid()
    folder.chmod(0o775)

    def group(name: str, *members: str) -> None:
        found = grp.struct_group((name, "x", folder.stat().st_gid, [*members]))
        monkeypatch.setattr(grp, "getgrgid", lambda _: found)

    group(user)
    if folder.stat().st_gid == number:
        assert check_folder(folder, ME)
    for name, members in ((user, ["guest"]), ("users", [])):
        group(name, *members)
        with pytest.raises(UntrustedError, match=f"the group {name} may write to {folder}"):
            check_folder(folder, ME)


def test_files_that_others_may_have_written_are_refused(folder: Path) -> None:
    file = folder / "file"
    file.write_bytes(b"code")
    file.chmod(0o646)
    with pytest.raises(UntrustedError, match=f"everybody may write to {file}"):
        read_trusted(file, ME)
    file.chmod(0o644)
    with pytest.raises(UntrustedError, match=f"{file} belongs to"):
        read_trusted(file, frozenset({STRANGE}))
    (folder / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic link"):
        read_trusted(folder / "link", ME)


def test_what_is_written_is_for_others_to_read_at_most(folder: Path) -> None:
    before = os.umask(0)
    try:
        assert write_whole(folder / "new" / "er" / "file", b"code")
    finally:
        os.umask(before)
    assert check_folder(folder / "new" / "er", ME)
    assert read_trusted(folder / "new" / "er" / "file", ME) == b"code"
