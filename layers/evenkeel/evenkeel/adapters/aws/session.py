"""A botocore session that starts quickly: boto3 makes the same clients, and brings along what nobody uses here."""

from pathlib import Path

from botocore.loaders import Loader
from botocore.session import Session


class _ModelsOfServices(Loader):  # type: ignore[misc]
    """Finds the model of a service by the name of its folder."""

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002  botocore's signature
        """Every service that has a folder.

        Before it loads one model, botocore opens the folders of all four hundred services, to see which has a model of
        this type. A service without one is told all the same, when its model is not found.
        """
        folders = [Path(path) for path in self.search_paths]
        return sorted({service.name for folder in folders if folder.is_dir() for service in folder.iterdir()})


def open_session() -> Session:
    """With the credentials, the region and the endpoints that the environment names."""
    session = Session()
    session.register_component("data_loader", _ModelsOfServices())
    return session
