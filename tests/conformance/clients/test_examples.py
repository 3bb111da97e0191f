"""Each example, run as its first line says, against the service."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from served import FILE_QUESTION, FILE_TEXT, PARIS, PATIENCE_S, Case, call

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
# Where the packages of Node are; not set: they could not be installed.
CLIENTS = os.environ.get("CLIENTS")
# What is no example.
OTHERS = {"README.md", "package.json", "package-lock.json"}


class Examples(Case):
    def run_one(self, command, folder):
        environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def python(self, name, *arguments, folder="."):
        return self.run_one([sys.executable, str(EXAMPLES / name), *arguments], folder)

    def node(self, name):
        if not CLIENTS:
            self.skipTest("Node's packages are not there")
        # A module finds packages in its own folder.
        shutil.copy(EXAMPLES / name, CLIENTS)
        return self.run_one(["node", name], CLIENTS)

    def test_openai_chat_py(self):
        first, *rest = self.python("openai_chat.py").splitlines()
        self.assertEqual(first, PARIS)
        self.assertTrue("".join(rest))

    def test_openai_chat_mjs(self):
        self.assertEqual(self.node("openai_chat.mjs"), self.python("openai_chat.py"))

    def test_anthropic_message_py(self):
        tokens, whole, streamed = self.python("anthropic_message.py").splitlines()
        self.assertRegex(tokens, r"^tokens of the prompt: \d+$")
        self.assertEqual(whole, f"{streamed} (end_turn)")
        self.assertIn("Paris", streamed)

    def test_langchain_chain_py(self):
        whole, streamed = self.python("langchain_chain.py").splitlines()
        self.assertIn("Paris", whole)
        self.assertIn("Rome", streamed)

    def test_litellm_chat_py(self):
        self.assertEqual(self.python("litellm_chat.py").splitlines(), [PARIS, PARIS])

    def test_vercel_ai_mjs(self):
        first, *rest = self.node("vercel_ai.mjs").splitlines()
        self.assertRegex(first, re.escape(PARIS) + r" \(\d+ tokens in, \d+ out\)")
        self.assertTrue("".join(rest))

    def test_curl_sh(self):
        whole, rest = self.run_one(["bash", str(EXAMPLES / "curl.sh")], ".").split("\n", 1)
        self.assertIn(f'"content":"{PARIS}"', whole)
        streamed, message = rest.split("data: [DONE]")
        deltas = re.findall(r'"delta":\{[^}]*"content":"([^"]*)"', streamed)
        self.assertEqual("".join(deltas), PARIS)
        self.assertIn('"stop_reason":"end_turn"', message)

    def test_agent_loop_py(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "notes.txt").write_text(FILE_TEXT)
            called, *rest = self.python("agent_loop.py", FILE_QUESTION, folder=folder).splitlines()
        self.assertEqual(called, "[tool_use] {'path': 'notes.txt'}")
        self.assertIn(FILE_TEXT, "".join(rest))

    def test_open_webui_yaml(self):
        """What Open WebUI asks for first is there; it is not run itself."""
        service = yaml.safe_load((EXAMPLES / "open-webui.yaml").read_text())["services"]["open-webui"]
        base = service["environment"]["OPENAI_API_BASE_URL"]
        self.assertTrue(base.startswith("${LLM_URL:-http://127.0.0.1:8000}"), base)
        path = base.removeprefix("${LLM_URL:-http://127.0.0.1:8000}")
        self.assertEqual(call(path + "/models")["data"][0]["id"], self.model)

    def test_every_example_is_run_and_listed(self):
        names = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - OTHERS
        tested = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        self.assertEqual({re.sub(r"\W", "_", name) for name in names} - tested, set())
        listed = (EXAMPLES / "README.md").read_text()
        for name in names:
            self.assertIn(f"({name})", listed)
            self.assertRegex((EXAMPLES / name).read_text(), r"^(#|//) Run: ")
