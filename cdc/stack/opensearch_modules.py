"""The descriptor and policy files that OpenSearch's modules need and that their jars do not carry.

In: the modules folder of a home. Out: one plugin-descriptor.properties in each, and a plugin-security.policy in the
four that open sockets or make class loaders.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "analysis-common": "org.opensearch.analysis.common.CommonAnalysisPlugin",
        "lang-painless": "org.opensearch.painless.PainlessPlugin",
        "mapper-extras": "org.opensearch.index.mapper.MapperExtrasPlugin",
        "parent-join": "org.opensearch.join.ParentJoinPlugin",
        "percolator": "org.opensearch.percolator.PercolatorPlugin",
        "reindex": "org.opensearch.index.reindex.ReindexPlugin",
        "transport-netty4": "org.opensearch.transport.Netty4Plugin",
    }
)
EXTENDS: Mapping[str, str] = MappingProxyType({"analysis-common": "lang-painless"})
GET_LOADER = 'java.lang.RuntimePermission "getClassLoader"'
POLICIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "analysis-common": (GET_LOADER,),
        "lang-painless": ('java.lang.RuntimePermission "createClassLoader"', GET_LOADER),
        "reindex": ('java.net.SocketPermission "*", "connect"', GET_LOADER),
        "transport-netty4": (
            'java.net.SocketPermission "*", "accept,connect"',
            'java.io.FilePermission "/proc/sys/net/core/somaxconn", "read"',
            GET_LOADER,
            'java.lang.RuntimePermission "setContextClassLoader"',
            'java.util.PropertyPermission "sun.nio.ch.bugLevel", "write"',
        ),
    }
)


def describe_modules(modules: Path, version: str) -> None:
    """Write the files for every module that is there."""
    for folder in sorted(modules.iterdir()):
        lines = {
            "name": folder.name,
            "description": f"module {folder.name}",
            "version": version,
            "opensearch.version": version,
            "java.version": "11",
            "classname": CLASSES[folder.name],
            "extended.plugins": EXTENDS.get(folder.name, ""),
            "has.native.controller": "false",
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (folder / "plugin-descriptor.properties").write_text(text)
        if folder.name in POLICIES:
            grants = "".join(f"  permission {permission};\n" for permission in POLICIES[folder.name])
            (folder / "plugin-security.policy").write_text(f"grant {{\n{grants}}};\n")
