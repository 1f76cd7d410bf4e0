"""Records `payloads.json`: `python -m tests.bits.record_payloads`."""

from tests.bits import payloads
from tests.bits import recorded


def main():
  found = {
    name: payloads.summary(payloads.coded(text))
    for name, text in payloads.KINDS.items()
  }
  recorded.write('payloads', found)


if __name__ == '__main__':
  main()
