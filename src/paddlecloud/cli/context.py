"""What a command is given: where to write, and the configuration and client if it asks for them.

Both are made on first use, because half of the commands need no server, and `doctor` has to report
what is wrong with a configuration on which the others only fail.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddlecloud.cli.output import Output
    from paddlecloud.client.config.resolve import Config
    from paddlecloud.client.sdk import Client


class Context:
    """One call of one command."""

    def __init__(self, out: Output, environ: Mapping[str, str], config_file: str | None) -> None:
        self.out = out
        self.environ = environ
        self._flags = {"config": config_file} if config_file else {}
        self._config: Config | None = None
        self._client: Client | None = None

    @property
    def config(self) -> Config:
        """The resolved configuration; ConfigError if it is wrong."""
        if self._config is None:
            from paddlecloud.client.config.resolve import resolve  # noqa: PLC0415 - not every command

            self._config = resolve(self._flags, self.environ)
            for warning in self._config.warnings:
                self.out.message(f"paddlecloud: {warning.text(self.out.lang)}")
        return self._config

    @property
    def client(self) -> Client:
        """A client for the configured server; it does nothing before its first call."""
        if self._client is None:
            from paddlecloud.client.sdk import Client  # noqa: PLC0415 - not every command

            trace = self.out.trace if self.debug else None
            self._client = Client(self.config, note=self.out.say, trace=trace)
        return self._client

    @property
    def debug(self) -> bool:
        return self.environ.get("PADDLECLOUD_DEBUG") == "1" or self.config.debug

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
