"""`afterimage up` and `down`: embedded servers, a prepared source, and capture and apply in the background.

Keeps true: doing it twice is harmless; `down` leaves no process behind.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from cdc.check import fix
from cdc.cli.services import services
from cdc.configuration import load_settings
from cdc.demo.shop import fill_shop, make_database
from cdc.settings import Settings
from cdc.stack.embedded import Stack
from cdc.stack.secret import password


def embedded_stack(settings: Settings, *, short_lived: bool = False) -> Stack:
    """The servers of this configuration; `short_lived` ones start faster and run slower."""
    ports = settings.stack
    return Stack(
        settings.data,
        postgres_major=int(ports.postgres_version),
        ports={
            "postgres": ports.postgres,
            "kafka": ports.kafka,
            "opensearch": ports.opensearch,
            "valkey": ports.valkey,
        },
        short_lived=short_lived,
    )


def start_servers(config: Path, console: Console, *, short_lived: bool = False) -> Settings:
    """Start what is embedded; the settings with the addresses that resulted."""
    settings = load_settings(config)
    if not settings.embedded:
        return settings
    for role in ("stream", "read"):
        password(settings.data / "secrets" / role)
    embedded_stack(settings, short_lived=short_lived).up(console)
    return load_settings(config)


def prepare_source(settings: Settings, console: Console) -> None:
    """The sample shop in a new embedded database; roles and publication wherever an admin role is given."""
    if settings.source.admin is None:
        return
    if settings.embedded and make_database(settings):
        with console.status("Filling the sample shop"):
            rows = fill_shop(settings)
        console.print(f"  made the sample shop in database {escape(settings.source.database)}: {rows:,} rows")
    for line in fix(settings):
        console.print(f"  made {escape(line)}", soft_wrap=True)


def bring_up(config: Path, console: Console) -> Settings:
    """Everything, left running."""
    settings = start_servers(config, console)
    prepare_source(settings, console)
    for service in services(settings, config):
        process = service.start()
        console.print(f"  [green]✓[/] {service.name} runs as process {process.pid}, log {service.log}", soft_wrap=True)
    return settings


def bring_down(config: Path, console: Console) -> None:
    """Stop apply, capture, then the servers."""
    settings = load_settings(config)
    for service in reversed(services(settings, config)):
        if service.stop():
            console.print(f"  stopped {service.name}")
    if settings.embedded:
        for name in embedded_stack(settings).down():
            console.print(f"  stopped {name}")
