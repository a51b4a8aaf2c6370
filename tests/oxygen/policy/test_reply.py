"""What a policy tells beside its actions can be made and read by code that has no model."""

import subprocess
import sys


def test_replies_need_no_jax():
    program = "import sys; sys.modules['jax'] = None; import oxygen.policy.reply"
    subprocess.run([sys.executable, "-c", program], check=True)
