from parser.cli import main

main()
