"""Package a release: zips, a template that names them, wheels, the kubectl plugin, an SBOM, and the signed checksums.

`make package` calls it after `sam build`. Entries of an archive have a fixed order, time and mode, so that the same
source gives the same bytes.
"""

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.sbom import sbom
from evenkeel import __version__

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
NAMESPACE = "evenkeel-release"
SBOM = "evenkeel.cdx.json"
PLUGIN = "kubectl-evenkeel.tar.gz"
# Files for the template's metadata, for the deployment and for the rights in clusters.
BESIDE = (
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "samconfig.toml",
    "deploy/kubernetes",
    "deploy/kms-key-policy.json",
    "deploy/terraform",
)
NOT_OURS = (".terraform*", "*.tfstate*")  # what Terraform leaves in its folder, credentials among it
# What each distribution for PyPI is built from, relative to its folder.
DISTRIBUTIONS = {
    ROOT: ("pyproject.toml", "layers/evenkeel/evenkeel"),
    ROOT / "cli": ("pyproject.toml", "README.md", "evenkeel_cli"),
}
_HOOKS = "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_wheel(to); b.build_sdist(to)"
_CODE = re.compile(r"^( +)(?:CodeUri|ContentUri): .*$", re.M)
_RESOURCE = re.compile(r"^  (\w+):(?: #.*)?$", re.M)
_BUILT_BY = re.compile(r"^ +Metadata: \{BuildMethod: .*\}\n", re.M)


def package(built: Path, target: Path, release_url: str) -> None:
    """Write the release of ``built``, the output of `sam build`, to an empty ``target``.

    Args:
        release_url: The address that users download the release from.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    template, parts = packaged((ROOT / "template.yaml").read_text(encoding="utf-8"))
    (target / "template.yaml").write_text(template, encoding="utf-8")
    for part in parts:
        _zip(built / part, target / f"{part}.zip")
    for name in BESIDE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns(*NOT_OURS))
        else:
            shutil.copyfile(source, target / source.name)
    distributions(target / "pypi")
    (target / SBOM).write_text(json.dumps(sbom(__version__), indent=1) + "\n", encoding="utf-8")
    archive = plugin_archive()
    (target / PLUGIN).write_bytes(archive)
    manifest = (ROOT / "deploy" / "krew" / "evenkeel.yaml").read_text(encoding="utf-8")
    manifest = re.sub(r"(?m)^( +uri: ).*$", rf"\g<1>{release_url}/{PLUGIN}", manifest)
    manifest = re.sub(r"(?m)^( +sha256: ).*$", rf'\g<1>"{sha256(archive).hexdigest()}"', manifest)
    (target / "evenkeel.yaml").write_text(manifest, encoding="utf-8")
    sums = [f"{sha256(file.read_bytes()).hexdigest()}  {file.relative_to(target)}\n" for file in _files(target)]
    (target / SUMS).write_text("".join(sums), encoding="utf-8")


def sign(target: Path, key: str) -> None:
    """Sign the checksums. Raises SystemExit.

    Args:
        key: A private key of `ssh-keygen`, or a public key whose private key is in an agent or a hardware token.
    """
    command = ["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE, str(target / SUMS)]
    try:
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise SystemExit(f"SIGNING_KEY: ssh-keygen cannot be run: {error}; install OpenSSH 8.1 or newer") from error
    if done.returncode != 0:
        raise SystemExit(f"SIGNING_KEY: {key}: ssh-keygen does not sign: {' '.join(done.stderr.split())}")


def distributions(target: Path) -> None:
    """Write the wheel and the source distribution of the command line, and of the library that it imports."""
    target.mkdir(parents=True)
    for project, sources in DISTRIBUTIONS.items():
        with TemporaryDirectory() as made:
            copy, built = Path(made, "copy"), Path(made, "built")
            for name in sources:  # a copy, since setuptools also packs what an earlier build left in the folder
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                if (project / name).is_dir():
                    shutil.copytree(project / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copyfile(project / name, copy / name)
            command = [sys.executable, "-c", _HOOKS, str(built)]
            subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
            shutil.unpack_archive(wheel, built / "wheel", "zip")
            _zip(built / "wheel", target / wheel.name)
            shutil.unpack_archive(source, built / "source", filter="data")
            files = {str(file.relative_to(built / "source")): file for file in _files(built / "source")}
            (target / source.name).write_bytes(_tar(files))


def packaged(template: str) -> tuple[str, list[str]]:
    """Return the template with zips in the place of folders, and the resources that own these zips."""
    parts: list[str] = []

    def zipped(match: re.Match[str]) -> str:
        part = _RESOURCE.findall(template, 0, match.start())[-1]
        parts.append(part)
        return f"{match[0].partition(':')[0]}: {part}.zip"

    return _BUILT_BY.sub("", _CODE.sub(zipped, template)), parts


def plugin_archive() -> bytes:
    """Return the archive that krew unpacks: the command line, its start script and the lock of its dependencies."""
    krew, product, cli = ROOT / "deploy" / "krew", ROOT / "layers" / "evenkeel", ROOT / "cli"
    files = {
        "kubectl-evenkeel": krew / "kubectl-evenkeel",
        "cli.txt": ROOT / "requirements" / "cli.txt",
        **{str(file.relative_to(product)): file for file in _sources(product / "evenkeel")},
        **{str(file.relative_to(cli)): file for file in _sources(cli / "evenkeel_cli")},
    }
    return _tar(files, executable="kubectl-evenkeel")


def _tar(files: Mapping[str, Path], *, executable: str = "") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = file.stat().st_size
            entry.mode = 0o755 if name == executable else 0o644
            with file.open("rb") as source:
                archive.addfile(entry, source)
    return gzip.compress(content.getvalue(), mtime=0)


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in _files(folder):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # of 1980, as every entry
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file()))


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the modules and data files of a package."""
    return (file for file in _files(folder) if file.parent.name != "__pycache__")


if __name__ == "__main__":
    release = Path(sys.argv[2])
    package(Path(sys.argv[1]), release, sys.argv[3])
    if sys.argv[4:]:
        sign(release, sys.argv[4])
