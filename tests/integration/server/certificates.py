"""Certificates for tests: an issuer of our own, and what it signs, good or wrong in one respect."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True, kw_only=True)
class Issuer:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    path: Path
    """What a client is given as ca_file."""


def an_issuer(folder: Path, name: str = "issuer") -> Issuer:
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1000))
        .not_valid_after(now + timedelta(days=1000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Issuer(key=key, certificate=certificate, path=path)


def issue(
    issuer: Issuer,
    folder: Path,
    *,
    names: tuple[str, ...] = NAMES,
    days: tuple[float, float] = (-1, 90),
    passphrase: bytes | None = None,
) -> tuple[Path, Path]:
    """A certificate for these names, good between these days from now, and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(list(map(_name, names))), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    sealed: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        sealed = serialization.BestAvailableEncryption(passphrase)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, sealed))
    return folder / "cert.pem", folder / "key.pem"


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
