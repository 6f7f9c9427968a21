"""Files that must not be used as the secret of a plan: private keys, and credentials of users or of the host.

A plan names the file or the variable that a secret is read from. So a plan could have the coordinator send away
whatever its user can read. `refused_path` judges a name as text, before and after links are followed; `refused_content`
judges what was read. Both are pure and give the reason, or "".
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import PurePosixPath

BYTES_MAX = 4096
"""A password in one line; a file that is longer is something else."""

_FOLDERS = frozenset(
    {".aws", ".azure", ".docker", ".gnupg", ".kube", ".password-store", ".pki", ".ssh", "gcloud", "keyrings",
    "letsencrypt", "pki"}
)  # fmt: skip
_PLACES = (
    "/dev",
    "/etc/gshadow",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/ssh",
    "/etc/ssl/private",
    "/proc",
    "/sys",
    "/var/lib/proveout",
)
_NAMES = re.compile(
    r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.*\.(p12|pfx|jks|keystore|kdbx|ppk|keytab)|\.netrc|\.git-credentials", re.I
)
_KEYS = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE "
    r"KEY|AGE-SECRET-KEY-1|PuTTY-User-Key-File|\"private_key\"|\"kty\"\s*:|b3BlbnNzaC1rZXktdjE|openssh-key-v1"
)
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{64,}={0,2}")


def refused_path(path: str) -> str:
    """The reason why no secret is read from a path; "" when its name is permitted."""
    parts = PurePosixPath(path).parts
    if folder := next((part for part in parts[:-1] if part.lower() in _FOLDERS), ""):
        return f"{path} lies in a folder of keys and credentials ({folder})"
    if found := next((one for one in _PLACES if path == one or path.startswith(f"{one}/")), ""):
        return f"{path} lies in {found}, where there are no passwords of plans"
    if parts and _NAMES.fullmatch(parts[-1]):
        return f"{path} has the name of a private key or of a user's credentials"
    return ""


def refused_content(content: bytes) -> str:
    """The reason why the content cannot be the secret of a plan; "" when it can be a password."""
    if len(content) > BYTES_MAX:
        return f"holds more than {BYTES_MAX} bytes"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    if _KEYS.search(text) or _is_encoded_key(text.strip()):
        return "looks like a private key"
    if "\n" in text.rstrip("\r\n") or "\x00" in text:
        return "holds more than one line"
    return ""


def _is_encoded_key(text: str) -> bool:
    """Whether a text is Base64 of a key: DER as in PKCS#1, #8 and #12, or any of the written forms."""
    if not _ENCODED.fullmatch(text):
        return False
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return False
    return _is_der(data) or _KEYS.search(data.decode("latin-1")) is not None


def _is_der(data: bytes) -> bool:
    """Whether it is one DER SEQUENCE with a long length, from the first byte to the last."""
    if len(data) < 2 or data[0] != 0x30 or not 0x81 <= data[1] <= 0x83:
        return False
    size = data[1] & 0x0F
    return int.from_bytes(data[2 : 2 + size], "big") == len(data) - 2 - size
