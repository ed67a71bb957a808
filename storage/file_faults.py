"""Reasons why a file cannot be read or written, in plain words."""

from __future__ import annotations

import os


def file_fault(error: BaseException, path: str | os.PathLike[str] = "", use: str = "read", noun: str = "file") -> str:
    """Return the reason why a file cannot be used, and what to do if that is clear.

    Parameters
    ----------
    error : BaseException
        Raised by the system, or by decoding the text.
    path : str or PathLike, optional
        The file; if its folder is missing, the reason names the folder.
    use : {"read", "write"}
    noun : {"file", "folder"}

    Examples
    --------
    >>> file_fault(FileNotFoundError(2, "No such file or directory"), "model.uai")
    'no such file'
    >>> file_fault(FileNotFoundError(2, "No such file or directory"), "nowhere/model.uai")
    'there is no folder nowhere'
    >>> file_fault(IsADirectoryError(21, "Is a directory"))
    'this is a folder; give the path of a file'
    >>> file_fault(PermissionError(13, "Permission denied"))
    'you do not have permission to read it'
    >>> file_fault(OSError(28, "No space left on device"))
    'no space left on device'
    """
    if isinstance(error, UnicodeDecodeError):
        return "this is not text in UTF-8; save it as UTF-8"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            return f"{folder} is not a folder" if os.path.exists(folder) else f"there is no folder {folder}"
        return (
            f"no such {noun}" if isinstance(error, FileNotFoundError) else "this is a file; give the path of a folder"
        )
    if isinstance(error, FileExistsError):
        return "this is a file; give the path of a folder"
    if isinstance(error, IsADirectoryError):
        return "this is a folder; give the path of a file"
    if isinstance(error, PermissionError):
        return f"you do not have permission to {use} it"
    said = getattr(error, "strerror", None) or str(error)
    is_system = isinstance(error, OSError) and error.errno is not None and said == os.strerror(error.errno)
    return said[:1].lower() + said[1:] if is_system else said
