"""Download one source archive from the package index that pip is configured for, without building its metadata.

`pip download --no-binary :all:` runs the package's build backend only to learn its dependencies, which needs a
compiler tool chain and can fail. This asks pip's own finder for the link, so index, proxy, certificates and
credentials are the user's, and saves the file as it is. Usage: pip_sdist.py NAME VERSION FOLDER
"""

import os
import sys


def main() -> None:
    name, version, folder = sys.argv[1:4]
    try:
        from pip._internal.commands import create_command
    except ImportError:
        sys.exit("pip is missing: install it, e.g. `apt-get install python3-pip`")

    command = create_command("download")
    with command.main_context():
        options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", "--quiet", "-d", folder, name])
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        links = [c.link for c in finder.find_all_candidates(name) if str(c.version) == version]
        if not links:
            sys.exit(f"the configured package index has no source archive of {name} {version}")
        response = session.get(
            links[0].url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True
        )
        response.raise_for_status()
        target = os.path.join(folder, links[0].filename)
        with open(target, "wb") as file:
            for chunk in response.iter_content(1 << 20):
                file.write(chunk)
    print(target)


main()
