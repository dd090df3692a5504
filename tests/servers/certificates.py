"""Certificates for TLS tests: an authority, what it signed, and an authority that signed nothing."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_Key = ec.EllipticCurvePrivateKey


class Certificates:
    """Certificates below ``directory``: for a server called localhost and for a client called certified."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._authority_key = ec.generate_private_key(ec.SECP256R1())
        self._authority = _authority("lookup_hints test authority", self._authority_key)
        stranger_key = ec.generate_private_key(ec.SECP256R1())
        self.authority = _written(directory / "ca.crt", _pem(self._authority))
        self.other_authority = _written(
            directory / "other-ca.crt", _pem(_authority("stranger", stranger_key))
        )
        server_key = ec.generate_private_key(ec.SECP256R1())
        # Only the name localhost: a client that checks names must refuse the same server as 127.0.0.1.
        server = self._signed("localhost", server_key)
        self.server_certificate = _written(directory / "server.crt", _pem(server))
        self.no_revocations = _written(directory / "none.crl", self._revocations())
        self.server_revoked = _written(directory / "server.crl", self._revocations(server))
        self.expired_certificate = _written(
            directory / "expired.crt", _pem(self._signed("localhost", server_key, days=-0.5))
        )
        self.server_key = _written(directory / "server.key", _key_pem(server_key))
        client_key = ec.generate_private_key(ec.SECP256R1())
        self.client_certificate = _written(
            directory / "client.crt", _pem(self._signed("certified", client_key))
        )
        self.client_key = _written(directory / "client.key", _key_pem(client_key))
        self.client_key.chmod(0o600)

    def _signed(self, name: str, key: _Key, days: float = 7) -> x509.Certificate:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name)])
        return (
            _builder(name, self._authority.subject, key, days)
            .add_extension(alternatives, critical=False)
            .add_extension(_key_identifier(self._authority_key), critical=False)
            .sign(self._authority_key, hashes.SHA256())
        )

    def _revocations(self, *revoked: x509.Certificate) -> bytes:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._authority.subject)
            .last_update(now - datetime.timedelta(days=1))
            .next_update(now + datetime.timedelta(days=7))
        )
        for each in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.serial_number)
                .revocation_date(now - datetime.timedelta(days=1))
                .build()
            )
        return builder.sign(self._authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _authority(name: str, key: _Key) -> x509.Certificate:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    return (
        _builder(name, _name(name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _builder(subject: str, issuer: x509.Name, key: _Key, days: float = 7) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_identifier(key: _Key) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
