"""``python -m trainer.protocol.train_options`` prints the page of all options."""

from trainer.protocol.train_options.reference import render_page

if __name__ == "__main__":
    print(render_page(), end="")
