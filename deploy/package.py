"""Package a release: zips, a template that names them, the kubectl plugin, and the checksums.

`make package` calls it after `sam build`. Entries of an archive have a fixed order, time and mode, so that the same
source gives the same bytes.
"""

import gzip
import io
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"
PLUGIN = "kubectl-evenkeel.tar.gz"
# Files for the template's metadata, for the deployment and for the rights in clusters.
BESIDE = ("README.md", "CHANGELOG.md", "samconfig.toml", "deploy/kubernetes")
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
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target / source.name)
    archive = plugin_archive()
    (target / PLUGIN).write_bytes(archive)
    manifest = (ROOT / "deploy" / "krew" / "evenkeel.yaml").read_text(encoding="utf-8")
    manifest = re.sub(r"(?m)^( +uri: ).*$", rf"\g<1>{release_url}/{PLUGIN}", manifest)
    manifest = re.sub(r"(?m)^( +sha256: ).*$", rf'\g<1>"{sha256(archive).hexdigest()}"', manifest)
    (target / "evenkeel.yaml").write_text(manifest, encoding="utf-8")
    sums = [f"{sha256(file.read_bytes()).hexdigest()}  {file.relative_to(target)}\n" for file in _files(target)]
    (target / SUMS).write_text("".join(sums), encoding="utf-8")


def packaged(template: str) -> tuple[str, list[str]]:
    """Return the template with zips in the place of folders, and the resources that own these zips."""
    parts: list[str] = []

    def zipped(match: re.Match[str]) -> str:
        part = _RESOURCE.findall(template, 0, match.start())[-1]
        parts.append(part)
        return f"{match[0].partition(':')[0]}: {part}.zip"

    return _BUILT_BY.sub("", _CODE.sub(zipped, template)), parts


def plugin_archive() -> bytes:
    """Return the archive that krew unpacks: the command line, its launcher and the lock of its dependencies."""
    krew, product, cli = ROOT / "deploy" / "krew", ROOT / "layers" / "evenkeel", ROOT / "cli"
    files = {
        "kubectl-evenkeel": krew / "kubectl-evenkeel",
        "cli.txt": ROOT / "requirements" / "cli.txt",
        **{str(file.relative_to(product)): file for file in _sources(product / "evenkeel")},
        **{str(file.relative_to(cli)): file for file in _sources(cli / "evenkeel_cli")},
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = file.stat().st_size
            entry.mode = 0o755 if name == "kubectl-evenkeel" else 0o644
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
    package(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
